"""Analyse files in this process, without any server."""

from collections.abc import Mapping
from pathlib import Path

import torch

from models.checkpoints.cards import ModelCard
from models.rhythm.tempo import TempoRange
from pipelines.analysis import mood_and_embedding, spectral
from pipelines.analysis.excerpt import Excerpt
from pipelines.analysis.merge import merge
from pipelines.analysis.networks.checkpoint_model import CheckpointModel, try_all
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local, run_on
from pipelines.batching.upload import bring


class LocalAnalyzer:
    """Loads the checkpoints once and analyses one file after the other.

    Args:
        cards: Role to its cards.
        model_dir: Where the pulled checkpoints are.
        device: Torch device.
        max_windows: Windows per track for the mood and embedding models; 0 means all.
        excerpt: What the mood and embedding models analyse of a track; None means all.

    Raises:
        CardError: No class here runs a card.
        CheckpointError: A checkpoint is missing, or does not match its card.
        DeviceFaultError: The device is broken, or too small for one of them.
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
        self._described = mood_and_embedding.build(cards, model_dir, device, max_windows)
        try_all(one for one in self._described.models if isinstance(one, CheckpointModel))
        self._excerpt, self._device = excerpt, device

    def analyze(
        self, path: Path, limits: DecodeLimits, tempo_range: TempoRange | None = None
    ) -> TrackFeatures:
        """Decode and analyse a file; its tempo will lie in the range, if one is given.

        Raises:
            AudioError: The file is unsuitable for analysis.
        """
        return self.hear(decode(path, limits), tempo_range)

    def hear(self, waveform: Waveform, tempo_range: TempoRange | None = None) -> TrackFeatures:
        """Analyse decoded audio."""
        of_range = self._spectral.within(tempo_range)
        track = bring(waveform, self._device)
        rhythm_and_key = run_on(of_range, track)
        if self._excerpt is None:
            mood, vector = run_on(self._described, track)
        else:
            heard = self._excerpt.take(waveform)
            mood, vector = run_local(self._described, heard, device=self._device)
            mood = self._excerpt.mark(mood)
        return merge(waveform.duration_s, rhythm_and_key, mood, vector)
