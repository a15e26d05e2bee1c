"""Evaluate a network: on rendered clips by its activations, on real files by afa's own decoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.rhythm.network import SAMPLE_RATE, BeatNetwork
from models.rhythm.tracker import BeatTracker
from pipelines.analysis.rhythm.beats import BeatEvidence
from pipelines.analysis.rhythm.estimate import Rhythm, estimate_rhythm
from pipelines.analysis.tonality.key import ChromaModel
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.resample import resample
from pipelines.training.clips import Clip, bands_of
from pipelines.training.kept import reading


@dataclass(frozen=True, slots=True)
class Heard:
    """The measurements of a file that are the same for every network.

    Attributes:
        bands: float16 ``[N, 83]``, linear, with the track at level 1.
        chroma: float32 ``[M, 12]``.
    """

    bands: NDArray[np.float16]
    chroma: NDArray[np.float32]


def hear(path: Path, cache: Path) -> Heard:
    """Measure a file as the service does, or read earlier measurements."""
    kept = cache / f"{path.stem}.npz"
    if kept.exists():
        with reading(kept) as file, np.load(file) as content:
            return Heard(content["bands"], content["chroma"])
    waveform = decode(path, DecodeLimits(max_seconds=3600))
    samples = resample(waveform.mono(), waveform.sample_rate, SAMPLE_RATE)
    model = ChromaModel("chroma", torch.device("cpu"))
    windows = model.grid.windows(torch.from_numpy(samples))
    chroma = model.chroma(model.forward(windows), len(samples), 0.0)
    heard = Heard(bands_of(samples), chroma)
    cache.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(".part.npz")  # a run stopped here leaves no half-written file
    np.savez(part, bands=heard.bands, chroma=heard.chroma)
    part.replace(kept)
    return heard


def evidence_of(networks: Sequence[BeatNetwork], bands: NDArray[np.float16]) -> BeatEvidence:
    """Run networks over linear bands ``[N, 83]`` of level 1, averaged as the service does."""
    tracker = BeatTracker(list(networks)).eval()
    with torch.inference_mode():
        features = tracker.features.compress(torch.from_numpy(bands.astype(np.float32)))[None]
        activations, tempo = tracker.average(features)
    return BeatEvidence(activations[0].numpy(), tempo[0].numpy())


def predict(
    networks: Sequence[BeatNetwork],
    bands: NDArray[np.float16],
    chroma: NDArray[np.float32] | None = None,
) -> Rhythm:
    """Estimate the rhythm of a clip from its bands, and its chroma if known."""
    return estimate_rhythm(evidence_of(networks, bands), chroma)


def clip_truth(clip: Clip) -> dict[str, Any]:
    """Return a clip's truth in the evaluation set's format."""
    steps = np.diff(clip.beats)
    return {
        "tempo": float(60 / np.median(steps)),
        "tempo_level": "sure",
        "beats": clip.beats.tolist(),
        "downbeats": clip.downbeats.tolist(),
    }


def as_prediction(rhythm: Rhythm) -> dict[str, Any]:
    """Return a rhythm in the evaluation set's format."""
    return {
        "tempo": rhythm.tempo,
        "beats": rhythm.beats.tolist(),
        "downbeats": rhythm.downbeats.tolist(),
    }
