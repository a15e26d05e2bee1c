"""The networks' outputs for stretches of every track, each altered in its own way."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray

from models.checkpoints.cards import ModelCard
from models.projection import evidence_of
from pipelines.analysis.embedding import EmbeddingStep
from pipelines.analysis.tags.tagging import vocabulary_of
from pipelines.audio.decode import DecodeLimits, decode_segments, probe
from pipelines.audio.waveform import AudioError, Waveform
from pipelines.batching.steps import CPU, forward_windows
from pipelines.batching.upload import bring
from pipelines.training.embedding.alter import alter
from pipelines.training.embedding.plan import EmbeddingPlan
from pipelines.training.kept import reading

Rows = NDArray[np.float32]

_SUFFIXES = (".ogg", ".opus", ".mp3", ".flac")
_LIMITS = DecodeLimits(max_seconds=3600.0)
_BATCH = 8


@dataclass(frozen=True, slots=True)
class Track:
    """A music file; its package counts as its album, and its key derives from its content."""

    package: str
    path: Path
    key: str


def tracks_of(package: str, root: Path, seed: int) -> list[Track]:
    """Return a package's audio files below ``root`` in a random order, without duplicates."""
    files = sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    Random(f"{seed} {package}").shuffle(files)  # noqa: S311
    tracks: dict[str, Track] = {}
    for path in files:
        key = f"{package}-{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
        tracks.setdefault(key, Track(package, path, key))
    return list(tracks.values())


def hear_package(
    tracks: list[Track],
    step: EmbeddingStep,
    plan: EmbeddingPlan,
    folder: Path,
    tell: Callable[[Track], None],
) -> None:
    """Save the evidence of a package's tracks in ``folder``, a file each, unless it exists."""
    n = 0
    for track in tracks:
        if n == plan.tracks_of_a_package:
            return
        kept = folder / f"{track.key}.npy"
        if not kept.exists():
            rows = hear(track, step, plan)
            if rows is None:
                continue
            part = kept.with_suffix(".part.npy")
            np.save(part, rows)
            part.replace(kept)
        n += 1
        tell(track)


def hear(track: Track, step: EmbeddingStep, plan: EmbeddingPlan) -> Rows | None:
    """Return the evidence ``[n_parts, N]`` of a track's stretches, the first one unaltered.

    None if the file is not music: too short or too long, silent or unreadable.
    """
    rng = Random(f"{plan.seed} {track.key}")  # noqa: S311
    try:
        duration_s = probe(track.path, _LIMITS).duration_s
        if duration_s is None or not plan.shortest_s <= duration_s <= plan.longest_s:
            return None
        share_s = duration_s / plan.n_parts
        spare_s = max(0.0, share_s - plan.part_s)
        segments = [
            (n * share_s + rng.uniform(0, spare_s), min(share_s, plan.part_s))
            for n in range(plan.n_parts)
        ]
        parts = decode_segments(track.path, segments, _LIMITS)
    except AudioError:
        return None
    rows = []
    for n, part in enumerate(parts):
        samples = part.mono()
        heard = Waveform((alter(samples, rng) if n else samples)[None], part.sample_rate)
        row = evidence(step, heard)
        if row is None:
            return None
        rows.append(row)
    return np.stack(rows) if len(rows) == plan.n_parts else None


def evidence(step: EmbeddingStep, waveform: Waveform) -> Rows | None:
    """Return the outputs of a step's networks, concatenated, ``[N]``; None for silence."""
    prepared = step.prepare(bring(waveform, CPU))
    if not prepared.windows:
        return None
    said = [
        evidence_of(forward_windows(model, prepared.windows[model.model_id], _BATCH))
        for model in step.models
    ]
    return torch.cat(said).numpy()


def load_evidence(folder: Path) -> dict[str, Rows]:
    """Return the rows of every analysed track, by its key.

    Raises:
        PlanError: One of the files is damaged.
    """
    heard = {}
    for path in sorted(folder.glob("*.npy")):
        if path.stem.endswith(".part"):  # left by a killed run
            continue
        with reading(path) as file:
            heard[path.stem] = np.load(file)
    return heard


def blocks_of(cards: Sequence[ModelCard], model_dir: Path) -> list[NDArray[np.int64]]:
    """Divide the networks' evidence: each one's embedding, then the named tags of all of them.

    Raises:
        CardError: The tags of one are named nowhere.
    """
    blocks, named, start = [], [], 0
    for card in cards:
        tags = start + card.outputs["embedding"]
        blocks.append(np.arange(start, tags))
        names = vocabulary_of(card, model_dir).names
        named += [tags + n for n, name in enumerate(names) if name]
        start = tags + len(names)
    return [*blocks, np.array(named)]
