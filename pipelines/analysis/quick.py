"""Tempo and key alone, on the CPU: what needs no attributes, tags or embedding."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.cards import ModelCard
from models.rhythm.beatnet import SAMPLE_RATE
from models.rhythm.tempo import TempoRange
from models.tonality.key import UNKNOWN, Key
from models.tonality.tuning import estimate_tuning
from pipelines.analysis.records import UNKNOWN_KEY, QuickFeatures
from pipelines.analysis.rhythm.beats import BeatModel, load_beat_model
from pipelines.analysis.rhythm.estimate import estimate_rhythm
from pipelines.analysis.spectral import CHROMA_ID, load_key_networks
from pipelines.analysis.tonality.key import ChromaModel, KeyNetworkModel, estimate_key
from pipelines.analysis.tonality.notes import camelot
from pipelines.audio.gain import SILENCE_PEAK, peak_of
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import forward_windows

BATCH_WINDOWS = 4


class QuickAnalyzer:
    """Runs the beat network, and the key models when asked; safe to use from several threads.

    The models are those of `pipelines.analysis.spectral`: a track has the same tempo and key
    either way.
    """

    def __init__(
        self, beats: BeatModel, chroma: ChromaModel, key_networks: KeyNetworkModel | None
    ) -> None:
        self._beats, self._chroma, self._key_networks = beats, chroma, key_networks

    def analyse(
        self, waveform: Waveform, *, with_key: bool, tempo_range: TempoRange | None = None
    ) -> QuickFeatures:
        """Estimate tempo, within a range if given, and key if ``with_key``; silence has neither."""
        track = Track.of(waveform)
        if peak_of(track.samples) < SILENCE_PEAK:
            return QuickFeatures(0.0, 0.0, UNKNOWN_KEY, UNKNOWN_KEY, "")
        samples = track.mono_at(SAMPLE_RATE)
        rows = forward_windows(self._beats, self._beats.windows(samples), BATCH_WINDOWS)
        evidence = self._beats.join(rows, len(samples))
        rhythm = estimate_rhythm(evidence, tempo_range=tempo_range)
        key = self._key(samples) if with_key else UNKNOWN
        return QuickFeatures(
            tempo=rhythm.tempo,
            tempo_confidence=rhythm.tempo_confidence,
            key=key.key,
            mode=key.mode,
            camelot=camelot(key.key, key.mode),
        )

    def _key(self, samples: Tensor) -> Key:
        windows = self._chroma.grid.windows(samples)
        rows = forward_windows(self._chroma, windows, BATCH_WINDOWS)
        tuning = estimate_tuning(samples)
        chroma = self._chroma.chroma(rows, len(samples), tuning)
        if self._key_networks is None:
            return estimate_key(chroma)
        windows = self._key_networks.windows(samples, tuning)
        keys = forward_windows(self._key_networks, windows, BATCH_WINDOWS)["keys"]
        return estimate_key(chroma, keys.numpy())


def build(
    cards: Mapping[str, tuple[ModelCard, ...]], model_dir: Path, device: torch.device
) -> QuickAnalyzer:
    """Load the checkpoints; see `pipelines.analysis.spectral.build`."""
    return QuickAnalyzer(
        load_beat_model(cards["beats"][0], model_dir, device),
        ChromaModel(CHROMA_ID, device),
        load_key_networks(cards["key"], model_dir, device),
    )
