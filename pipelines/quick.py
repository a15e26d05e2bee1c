"""Tempo and key alone, on the CPU: what needs no attributes, tags or embedding."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from models.beats import SAMPLE_RATE, BeatEnsemble
from models.cards import ModelCard
from models.checkpoints import load_tensors
from pipelines.audio import Waveform
from pipelines.features import camelot
from pipelines.records import UNKNOWN_KEY, QuickFeatures
from pipelines.resample import resample
from pipelines.rhythm import BeatModel, estimate_rhythm
from pipelines.spectral import SILENCE_PEAK
from pipelines.steps import forward_windows
from pipelines.tonal import ChromaModel, estimate_key

BATCH_WINDOWS = 4


class QuickAnalyzer:
    """Runs the beat network, and the key model when asked; safe to use from several threads."""

    def __init__(self, beats: BeatModel, chroma: ChromaModel) -> None:
        self._beats, self._chroma = beats, chroma

    def analyse(self, waveform: Waveform, *, with_key: bool) -> QuickFeatures:
        """Estimate tempo, and key if ``with_key``; silence has neither."""
        if np.abs(waveform.samples).max(initial=0.0) < SILENCE_PEAK:
            return QuickFeatures(0.0, 0.0, UNKNOWN_KEY, UNKNOWN_KEY, "")
        samples = resample(waveform.mono(), waveform.sample_rate, SAMPLE_RATE)
        windows = self._beats.grid.windows(samples)
        rows = forward_windows(self._beats, windows, BATCH_WINDOWS)["activations"]
        rhythm = estimate_rhythm(self._beats.grid.join(rows, len(samples)).numpy())
        key = mode = UNKNOWN_KEY
        if with_key:
            windows = self._chroma.grid.windows(samples)
            rows = forward_windows(self._chroma, windows, BATCH_WINDOWS)["chroma"]
            found = estimate_key(self._chroma.grid.join(rows, len(samples)).numpy())
            key, mode = found.key, found.mode
        return QuickFeatures(rhythm.tempo, rhythm.tempo_confidence, key, mode, camelot(key, mode))


def build(
    cards: Mapping[str, tuple[ModelCard, ...]], model_dir: Path, device: torch.device
) -> QuickAnalyzer:
    """Load the checkpoints; see `pipelines.spectral.build`."""
    beats = cards["beats"][0]
    network = BeatEnsemble.from_tensors(load_tensors(beats, model_dir))
    return QuickAnalyzer(
        BeatModel(beats.model_id, network, device), ChromaModel(cards["key"][0].model_id, device)
    )
