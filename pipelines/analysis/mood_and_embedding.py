"""Mood and embedding as one step, so that a trunk which serves both is run once.

Sharing needs no special case: the steps name their models by id, windows of one id are cut once and
run once, and both steps read the rows.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from models.checkpoints.cards import ModelCard
from pipelines.analysis import embedding, mood
from pipelines.analysis.checkpoint_model import EAGER, CheckpointModel, Execution
from pipelines.analysis.embedding import EmbeddingStep
from pipelines.analysis.mood import MoodStep
from pipelines.analysis.records import EmbeddingResult, MoodResult
from pipelines.audio.track import Track
from pipelines.batching.steps import Outputs, Prepared


class MoodAndEmbeddingStep:
    """Runs both steps over the union of their models."""

    def __init__(self, mood_step: MoodStep, embedding_step: EmbeddingStep) -> None:
        self._mood = mood_step
        self._embedding = embedding_step

    is_mono = True

    @property
    def models(self) -> Sequence[CheckpointModel]:
        """See `Step`; every model once."""
        both = [*self._mood.models, *self._embedding.models]
        return tuple({model.model_id: model for model in both}.values())

    def prepare(self, track: Track) -> Prepared:
        """Prepare for both steps; windows of a shared model are the same for both."""
        parts = self._mood.prepare(track), self._embedding.prepare(track)
        return Prepared({**parts[0].windows, **parts[1].windows}, context=parts)

    def finish(self, prepared: Prepared, outputs: Outputs) -> tuple[MoodResult, EmbeddingResult]:
        """Finish both steps."""
        if not isinstance(prepared.context, tuple):
            raise TypeError("prepared by another step")
        for_mood, for_embedding = prepared.context
        return (
            self._mood.finish(for_mood, outputs),
            self._embedding.finish(for_embedding, outputs),
        )


def build(
    cards: Mapping[str, Sequence[ModelCard]],
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
) -> MoodAndEmbeddingStep:
    """Load both steps' checkpoints, a shared one once; as `pipelines.analysis.mood.build`."""
    vectors = embedding.build(cards, model_dir, device, max_windows, execution)
    tags = mood.build(cards, model_dir, device, max_windows, execution, vectors.models)
    return MoodAndEmbeddingStep(tags, vectors)
