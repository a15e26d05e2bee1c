"""Tempo and key only, on the CPU: for uses that need no attributes, tags or embedding."""

from collections.abc import Mapping
from dataclasses import replace
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
from pipelines.analysis.spectral import CHROMA_ID, load_chord_model, load_key_networks
from pipelines.analysis.tonality.chords import ChordEvidence, ChordModel, join_chords
from pipelines.analysis.tonality.key import ChromaModel, KeyNetworkModel, estimate_key
from pipelines.analysis.tonality.notes import camelot
from pipelines.audio.gain import SILENCE_PEAK, peak_of
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import forward_windows

BATCH_WINDOWS = 4


class QuickAnalyzer:
    """Runs the beat and chord networks, and the key models on request; thread-safe.

    The models are those of `pipelines.analysis.spectral`: a track has the same tempo and key
    either way.
    """

    def __init__(
        self,
        beats: BeatModel,
        chroma: ChromaModel,
        chords: ChordModel,
        key_networks: KeyNetworkModel | None,
    ) -> None:
        self._beats, self._chroma, self._chords = beats, chroma, chords
        self._key_networks = key_networks

    def analyse(
        self, waveform: Waveform, *, with_key: bool, tempo_range: TempoRange | None = None
    ) -> QuickFeatures:
        """Estimate tempo, within a range if given, and key if ``with_key``; silence has neither."""
        track = Track.of(waveform)
        if peak_of(track.samples) < SILENCE_PEAK:
            return QuickFeatures(0.0, 0.0, UNKNOWN_KEY, UNKNOWN_KEY, "")
        samples = track.mono_at(SAMPLE_RATE)
        tuning = estimate_tuning(samples)
        chords = self._chords_of(samples, tuning)
        rows = forward_windows(self._beats, self._beats.windows(samples), BATCH_WINDOWS)
        evidence = replace(self._beats.join(rows, len(samples)), chords=chords)
        rhythm = estimate_rhythm(evidence, tempo_range=tempo_range)
        key = self._key(samples, tuning) if with_key else UNKNOWN
        return QuickFeatures(
            tempo=rhythm.tempo,
            tempo_confidence=rhythm.tempo_confidence,
            key=key.key,
            mode=key.mode,
            camelot=camelot(key.key, key.mode),
        )

    def _chords_of(self, samples: Tensor, tuning_cents: float) -> ChordEvidence:
        windows, n_in_tune = self._chords.windows(samples, tuning_cents)
        rows = forward_windows(self._chords, windows, BATCH_WINDOWS)
        return join_chords(rows, self._chords.grid, n_in_tune, len(samples))

    def _key(self, samples: Tensor, tuning_cents: float) -> Key:
        windows = self._chroma.grid.windows(samples)
        rows = forward_windows(self._chroma, windows, BATCH_WINDOWS)
        chroma = self._chroma.chroma(rows, len(samples), tuning_cents)
        networks = None
        if self._key_networks is not None:
            windows = self._key_networks.windows(samples, tuning_cents)
            networks = forward_windows(self._key_networks, windows, BATCH_WINDOWS)["keys"].numpy()
        return estimate_key(chroma, networks)


def build(
    cards: Mapping[str, tuple[ModelCard, ...]], model_dir: Path, device: torch.device
) -> QuickAnalyzer:
    """Load the checkpoints; see `pipelines.analysis.spectral.build`."""
    return QuickAnalyzer(
        load_beat_model(cards["beats"][0], model_dir, device),
        ChromaModel(CHROMA_ID, device),
        load_chord_model(cards["chords"][0], model_dir, device),
        load_key_networks(cards["key"], model_dir, device),
    )
