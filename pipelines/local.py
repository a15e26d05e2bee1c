"""Analyse files in this process, without any server."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch

from models.checkpoints.cards import ModelCard
from models.rhythm.tempo import TempoRange
from pipelines.analysis import embedding, mood, spectral
from pipelines.analysis.excerpt import Excerpt
from pipelines.analysis.merge import merge
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall-clock seconds of the stages of one analysis."""

    decode_s: float
    spectral_s: float
    mood_s: float
    embedding_s: float


class LocalAnalyzer:
    """Loads the checkpoints once and analyses one file after the other.

    Args:
        cards: Role to its cards.
        model_dir: Where the pulled checkpoints are.
        device: Torch device.
        max_windows: Windows per track for the mood and embedding models; 0 means all.
        excerpt: What the mood and embedding models hear of a track; None means all.
    """

    def __init__(
        self,
        cards: Mapping[str, tuple[ModelCard, ...]],
        model_dir: Path,
        device: torch.device,
        max_windows: int = 0,
        excerpt: Excerpt | None = None,
    ) -> None:
        self._spectral = spectral.build(cards, model_dir, device)
        self._mood = mood.build(cards, model_dir, device, max_windows=max_windows)
        self._embedding = embedding.build(cards, model_dir, device, max_windows=max_windows)
        self._excerpt, self._device = excerpt, device

    def analyze(
        self, path: Path, limits: DecodeLimits, tempo_range: TempoRange | None = None
    ) -> tuple[TrackFeatures, Timings]:
        """Decode and analyse a file; its tempo lies in the range, if there is one.

        Raises:
            AudioError: The file is not fit for analysis.
        """
        begun_s = time.perf_counter()
        waveform = decode(path, limits)
        decode_s = time.perf_counter() - begun_s
        features, timings = self.hear(waveform, tempo_range)
        return features, replace(timings, decode_s=decode_s)

    def hear(
        self, waveform: Waveform, tempo_range: TempoRange | None = None
    ) -> tuple[TrackFeatures, Timings]:
        """Analyse what is decoded already."""
        marks = [time.perf_counter()]

        def lap() -> None:
            marks.append(time.perf_counter())

        rhythm_and_key = run_local(
            self._spectral.within(tempo_range), waveform, device=self._device
        )
        lap()
        heard = waveform if self._excerpt is None else self._excerpt.take(waveform)
        mood_result = run_local(self._mood, heard, device=self._device)
        if self._excerpt is not None:
            mood_result = self._excerpt.mark(mood_result)
        lap()
        vector = run_local(self._embedding, heard, device=self._device)
        lap()
        features = merge(waveform.duration_s, rhythm_and_key, mood_result, vector)
        laps = [after - before for before, after in pairwise(marks)]
        return features, Timings(0.0, *laps)
