"""The networks' outputs for the benchmark's sounds, kept in files next to the audio.

With them, another projection of the same networks can be measured in seconds.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.embedding import everyday, instruments, music
from benchmarks.embedding.measures import Labels, Vectors
from configs.settings import Settings
from models.checkpoints.cache import load_tensors
from models.checkpoints.cards import ModelCard
from models.projection import Projection
from pipelines.analysis.embedding import EmbeddingStep, Trunk
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import AudioError, Waveform
from pipelines.training.embedding.hear import Rows, Track, evidence

SHORTEST_S, LONGEST_S = 75.0, 600.0
"""Long enough for two different excerpts of 30 s."""
PLAIN = "plain"
VERSIONS = (PLAIN, *music.ALTERATIONS)

OfContenders = Mapping[str, Vectors]


@dataclass(frozen=True, slots=True)
class HeardTracks:
    """Real tracks: the package of each, and version → contender → vectors."""

    albums: Labels
    versions: Mapping[str, OfContenders]


@dataclass(frozen=True, slots=True)
class HeardInstruments:
    """Rendered instruments: font and family of each, and contender → vectors."""

    fonts: Labels
    families: Labels
    vectors: OfContenders


@dataclass(frozen=True, slots=True)
class HeardSounds:
    """Everyday sounds: the kind of each, and contender → vectors."""

    kinds: Labels
    vectors: OfContenders


class Listener:
    """Runs the networks once for every sound.

    Args:
        trunks: The networks.
        card: Card of the embedding that projects their outputs.
    """

    def __init__(self, trunks: list[Trunk], card: ModelCard) -> None:
        self._step = EmbeddingStep(card.model_id, trunks)
        self._card = card
        self._projection = Projection(load_tensors(card, Settings().resolved_model_dir()))
        self._folder = music.audio_dir() / "heard"
        self._folder.mkdir(parents=True, exist_ok=True)

    def tracks(self, most: int) -> HeardTracks:
        """Analyse ``most`` tracks of every package, unaltered and altered."""
        rows: dict[str, list[Rows]] = {name: [] for name in VERSIONS}
        albums: list[str] = []
        for track in music.tracks():
            if albums.count(track.package) < most and self._is_heard(track):
                albums.append(track.package)
                for name in VERSIONS:
                    rows[name].append(np.load(self._path(f"{track.key} {name}")))
        vectors = {name: self._vectors(rows[name]) for name in VERSIONS}
        return HeardTracks(np.array(albums), vectors)

    def instruments(self, programs: int) -> HeardInstruments:
        """Analyse ``programs`` instruments of every family."""
        fonts, families, rows = [], [], []
        for n, (font, family, sound) in enumerate(instruments.sounds(programs)):
            name = f"instrument {programs} {n}"
            if self._hear(name, sound):
                fonts.append(str(font))
                families.append(family)
                rows.append(np.load(self._path(name)))
        return HeardInstruments(np.array(fonts), np.array(families), self._vectors(rows))

    def everyday(self) -> HeardSounds:
        """Analyse everyday sounds."""
        kinds, rows = [], []
        for n, (kind, sound) in enumerate(everyday.sounds()):
            if self._hear(f"everyday {n}", sound):
                kinds.append(kind)
                rows.append(np.load(self._path(f"everyday {n}")))
        return HeardSounds(np.array(kinds), self._vectors(rows))

    def _is_heard(self, track: Track) -> bool:
        """Analyse all versions of a track; False if it is too short or long, or not music."""
        if all(self._path(f"{track.key} {name}").exists() for name in VERSIONS):
            return True
        try:
            waveform = decode(track.path, DecodeLimits(max_seconds=LONGEST_S))
        except AudioError:
            return False
        if waveform.duration_s < SHORTEST_S:
            return False
        plain = self._hear(f"{track.key} {PLAIN}", music.EXCERPT.take(waveform))
        return plain and all(
            self._hear(f"{track.key} {name}", alter(waveform))
            for name, alter in music.ALTERATIONS.items()
        )

    def _hear(self, name: str, waveform: Waveform) -> bool:
        """Save the evidence of a sound; False for silence."""
        path = self._path(name)
        if not path.exists():
            row = evidence(self._step, waveform)
            if row is None:
                return False
            np.save(path, row)
        return True

    def _path(self, name: str) -> Path:
        digests = "".join(part.tensors_sha256 for part in self._card.parts)
        return self._folder / f"{hashlib.sha256((digests + name).encode()).hexdigest()[:24]}.npy"

    def _vectors(self, rows: list[Rows]) -> dict[str, Vectors]:
        """Return every contender's vectors for the analysed sounds."""
        stacked = np.stack(rows)
        contenders, start = {}, 0
        for part in self._card.parts:
            n = part.outputs["embedding"]
            contenders[part.model_id] = stacked[:, start : start + n].astype(np.float64)
            start += n + part.outputs["tags"]
        projected = [self._projection([torch.from_numpy(row)]).numpy() for row in rows]
        return {**contenders, self._card.model_id: np.stack(projected)}
