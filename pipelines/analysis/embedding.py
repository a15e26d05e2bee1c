"""The embedding step: one unit vector for a whole track, and the tags of the same forwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.cache import load_tensors
from models.checkpoints.cards import ModelCard
from models.projection import Projection, evidence_of
from pipelines.analysis.networks.checkpoint_model import EAGER, CheckpointModel, Execution, load
from pipelines.analysis.networks.levelled import levelled_windows
from pipelines.analysis.records import EMBEDDING_DIMENSION, EmbeddingResult
from pipelines.analysis.tags.presence import audience, speech
from pipelines.analysis.tags.tagging import (
    Vocabulary,
    calibrated_tags,
    merge_tags,
    vocabulary_of,
)
from pipelines.analysis.tags.vocals import SOUND_TAGGER, voices
from pipelines.audio.track import Track
from pipelines.batching.steps import Outputs, Prepared


@dataclass(frozen=True, slots=True)
class Trunk:
    """A network with ``embedding``, and the vocabulary of its ``tags``; None if it has none."""

    model: CheckpointModel
    vocabulary: Vocabulary | None


class EmbeddingStep:
    """The mean of a network's ``embedding`` over a track's windows, or a projection of several.

    Args:
        model_id: The id of the vectors.
        trunks: The networks; exactly one if there is no projection.
        projection: Makes one vector from the outputs of all of them.
    """

    def __init__(
        self, model_id: str, trunks: Sequence[Trunk], projection: Projection | None = None
    ) -> None:
        self._trunks = trunks
        self._projection = projection
        self._ids = {"embedding": model_id}

    is_mono = True

    @property
    def models(self) -> Sequence[CheckpointModel]:
        """See `Step`."""
        return [trunk.model for trunk in self._trunks]

    def prepare(self, track: Track) -> Prepared:
        """See `levelled_windows`."""
        return levelled_windows(track, self.models, self.models[0].spec.sample_rate)

    def finish(self, prepared: Prepared, outputs: Outputs) -> EmbeddingResult:
        """Average over the windows, project or pad, and normalise."""
        if prepared.context is None:  # silent
            return EmbeddingResult([0.0] * EMBEDDING_DIMENSION, [], dict(self._ids))
        rows = [outputs[model.model_id] for model in self.models]
        if self._projection is None:
            vector = rows[0]["embedding"].mean(dim=0)
        else:
            vector = self._projection([evidence_of(of_model) for of_model in rows])
        heard = {
            trunk.model.model_id: (trunk.vocabulary, of_model["tags"])
            for trunk, of_model in zip(self._trunks, rows, strict=True)
            if trunk.vocabulary is not None
        }
        tagged = heard.values()
        return EmbeddingResult(
            unit_vector(vector).tolist(),
            merge_tags(*(calibrated_tags(names, tags.mean(dim=0)) for names, tags in tagged)),
            dict(self._ids),
            audience=max((audience(*one) for one in tagged), default=0.0),
            speech=max((speech(*one) for one in tagged), default=0.0),
            voices=voices(*heard[SOUND_TAGGER]) if SOUND_TAGGER in heard else None,
        )


def unit_vector(mean: Tensor) -> Tensor:
    """Zero-pad ``[D]``, D ≤ 768, to ``[768]`` and divide by its L2 norm; zeros stay zeros."""
    padded = torch.zeros(EMBEDDING_DIMENSION, dtype=torch.float64)
    padded[: len(mean)] = mean
    return torch.nn.functional.normalize(padded, dim=0).round(decimals=8)


def load_trunks(
    cards: Sequence[ModelCard],
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
) -> list[Trunk]:
    """Load embedding networks; arguments and errors as in `pipelines.analysis.mood.build`."""
    return [
        Trunk(
            load(card, model_dir, device, max_windows, execution),
            vocabulary_of(card, model_dir) if "tags" in card.outputs else None,
        )
        for card in cards
    ]


def build(
    cards: Mapping[str, Sequence[ModelCard]],
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
) -> EmbeddingStep:
    """Load the step's checkpoint; arguments and errors as in `pipelines.analysis.mood.build`."""
    card = cards["embedding"][0]
    trunks = load_trunks(card.parts or (card,), model_dir, device, max_windows, execution)
    projection = Projection(load_tensors(card, model_dir)) if card.parts else None
    return EmbeddingStep(card.model_id, trunks, projection)
