"""Mood and embedding as one step, so that a trunk that serves both runs only once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from models.checkpoints.cards import ModelCard
from pipelines.analysis import embedding, mood
from pipelines.analysis.networks.checkpoint_model import EAGER, Execution
from pipelines.analysis.records import EmbeddingResult, MoodResult
from pipelines.batching.steps import Both

MoodAndEmbeddingStep = Both[MoodResult, EmbeddingResult]


def build(
    cards: Mapping[str, Sequence[ModelCard]],
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
) -> MoodAndEmbeddingStep:
    """Load both steps' checkpoints, shared ones once; as `pipelines.analysis.mood.build`."""
    vectors = embedding.build(cards, model_dir, device, max_windows, execution)
    tags = mood.build(cards, model_dir, device, max_windows, execution, vectors.models)
    return Both(tags, vectors)
