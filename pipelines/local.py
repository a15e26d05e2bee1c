"""Analyse files in this process, without any server."""

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from models.cards import ModelCard
from pipelines import embedding, mood, spectral
from pipelines.decode import DecodeLimits, decode
from pipelines.merge import merge
from pipelines.records import TrackFeatures
from pipelines.steps import run_local


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
    """

    def __init__(
        self,
        cards: dict[str, tuple[ModelCard, ...]],
        model_dir: Path,
        device: torch.device,
        max_windows: int = 0,
    ) -> None:
        self._spectral = spectral.build(cards, model_dir, device)
        self._mood = mood.build(cards, model_dir, device, max_windows=max_windows)
        self._embedding = embedding.build(cards, model_dir, device, max_windows=max_windows)

    def analyze(self, path: Path, limits: DecodeLimits) -> tuple[TrackFeatures, Timings]:
        """Decode and analyse a file.

        Raises:
            AudioError: The file is not fit for analysis.
        """
        marks = [time.perf_counter()]

        def lap() -> None:
            marks.append(time.perf_counter())

        waveform = decode(path, limits)
        lap()
        rhythm_and_key = run_local(self._spectral, waveform)
        lap()
        mood_result = run_local(self._mood, waveform)
        lap()
        vector = run_local(self._embedding, waveform)
        lap()
        features = merge(waveform.duration_s, rhythm_and_key, mood_result, vector)
        laps = [after - before for before, after in pairwise(marks)]
        return features, Timings(*laps)
