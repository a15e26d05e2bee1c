"""The embedding step: one vector of norm 1 for a whole track, and the tags of the same forward."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from models.checkpoints.cards import ModelCard
from pipelines.analysis.checkpoint_model import EAGER, CheckpointModel, Execution, load
from pipelines.analysis.records import EMBEDDING_DIMENSION, EmbeddingResult
from pipelines.analysis.tags.tagging import Vocabulary, calibrated_tags, vocabulary_of
from pipelines.audio.gain import audible, measure_gain
from pipelines.audio.resample import mono_at
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import Outputs, Prepared


class EmbeddingStep:
    """The mean of a network's ``embedding`` over a track's windows; ``tags`` where it has them.

    Args:
        model: A network with ``embedding``.
        vocabulary: What its tags are; None if it has none.
    """

    def __init__(self, model: CheckpointModel, vocabulary: Vocabulary | None) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._ids = {"embedding": model.model_id}

    @property
    def models(self) -> Sequence[CheckpointModel]:
        """See `Step`."""
        return (self._model,)

    def prepare(self, waveform: Waveform) -> Prepared:
        """Resample, set the level and cut the windows; nothing is run on silence."""
        rate = self._model.spec.sample_rate
        samples = mono_at(waveform, rate)
        gain = measure_gain(samples, rate)
        if gain is None:
            return Prepared({})
        samples *= np.float32(gain)
        return Prepared({self._model.model_id: audible(self._model.cut(samples), gain)})

    def finish(self, prepared: Prepared, outputs: Outputs) -> EmbeddingResult:
        """Average over the windows, pad and normalise."""
        if not prepared.windows:
            return EmbeddingResult([0.0] * EMBEDDING_DIMENSION, [], dict(self._ids))
        rows = outputs[self._model.model_id]
        vector = unit_vector(rows["embedding"].mean(dim=0))
        tags = []
        if self._vocabulary is not None:
            tags = calibrated_tags(self._vocabulary, rows["tags"].mean(dim=0))
        return EmbeddingResult(vector.tolist(), tags, dict(self._ids))


def unit_vector(mean: Tensor) -> Tensor:
    """Zero-pad ``[D]``, D ≤ 768, to ``[768]`` and divide by its L2 norm; zeros stay zeros."""
    padded = torch.zeros(EMBEDDING_DIMENSION, dtype=torch.float64)
    padded[: len(mean)] = mean
    return torch.nn.functional.normalize(padded, dim=0).round(decimals=8)


def build(
    cards: Mapping[str, Sequence[ModelCard]],
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
) -> EmbeddingStep:
    """Load the step's checkpoint; arguments and errors as in `pipelines.analysis.mood.build`."""
    card = cards["embedding"][0]
    vocabulary = vocabulary_of(card, model_dir) if "tags" in card.outputs else None
    return EmbeddingStep(load(card, model_dir, device, max_windows, execution), vocabulary)
