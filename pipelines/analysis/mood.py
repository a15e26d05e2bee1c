"""The mood step: Spotify-style attributes and tags of a whole track."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev

import torch
from torch import Tensor

from models.checkpoints.cards import ModelCard
from models.vibenet import ATTRIBUTES
from pipelines.analysis.networks.checkpoint_model import EAGER, CheckpointModel, Execution, load
from pipelines.analysis.networks.levelled import levelled_windows
from pipelines.analysis.records import MoodResult
from pipelines.analysis.tags.attributes import MAPPING_NETWORK, attributes_from_tags
from pipelines.analysis.tags.tagging import Vocabulary, calibrated_tags, vocabulary_of
from pipelines.analysis.tags.vocals import instrumentalness, speechiness
from pipelines.audio.track import Track
from pipelines.batching.steps import Outputs, Prepared

SAMPLE_RATE = 16_000
"""Hz at which the loudness is measured."""

SILENT = dict.fromkeys(ATTRIBUTES, 0.0)
"""Attributes of silence: all 0, which says nothing about it."""


class MoodStep:
    """Attributes and tags of a track at one loudness.

    Args:
        tagger: A network with ``tags``.
        vocabulary: The tagger's tags.
        attributes: A network with ``attributes``; without one, they are mapped from the tags.
        attributes_id: The model id to report for the attributes.
    """

    def __init__(
        self,
        tagger: CheckpointModel,
        vocabulary: Vocabulary,
        attributes: CheckpointModel | None,
        attributes_id: str,
    ) -> None:
        self._tagger = tagger
        self._attributes = attributes
        self._vocabulary = vocabulary
        self._ids = {"attributes": attributes_id, "tags": tagger.model_id}

    is_mono = True

    @property
    def models(self) -> Sequence[CheckpointModel]:
        """See `Step`."""
        return (self._tagger,) if self._attributes is None else (self._attributes, self._tagger)

    def prepare(self, track: Track) -> Prepared:
        """See `levelled_windows`."""
        return levelled_windows(track, self.models, SAMPLE_RATE)

    def finish(self, prepared: Prepared, outputs: Outputs) -> MoodResult:
        """Average over the windows and calibrate the tags."""
        ids = dict(self._ids)
        if prepared.context is None:  # silent
            return MoodResult(**SILENT, tags=[], models=ids, spread={}, n_parts=0)
        heard = outputs[self._tagger.model_id]["tags"]
        tags = calibrated_tags(self._vocabulary, heard.mean(dim=0))
        if self._attributes is None:
            values = attributes_from_tags(self._vocabulary, heard.mean(dim=0))
            return MoodResult(**values, tags=tags, models=ids, spread={}, n_parts=0)
        rows = outputs[self._attributes.model_id]["attributes"]
        n_parts = min(len(rows), len(heard))
        parts = [
            self._weigh(*part)
            for part in zip(rows.tensor_split(n_parts), heard.tensor_split(n_parts), strict=True)
        ]
        return MoodResult(
            **self._weigh(rows, heard),
            tags=tags,
            models=ids,
            spread={
                name: stdev(part[name] for part in parts) if n_parts > 1 else 0.0
                for name in ATTRIBUTES
            },
            n_parts=n_parts,
        )

    def _weigh(self, rows: Tensor, heard: Tensor) -> dict[str, float]:
        """Return the attributes, from those of windows ``[W, 7]`` and their tags ``[W', K]``."""
        values = dict(zip(ATTRIBUTES, rows.mean(dim=0).tolist(), strict=True))
        without_vocals = instrumentalness(
            values["instrumentalness"], self._vocabulary, heard.mean(dim=0)
        )
        return values | {
            "instrumentalness": without_vocals,
            "speechiness": speechiness(values["speechiness"], without_vocals),
        }


def build(
    cards: Mapping[str, Sequence[ModelCard]],
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
    loaded: Sequence[CheckpointModel] = (),
) -> MoodStep:
    """Load the step's checkpoints.

    Args:
        cards: Role to its cards (`models.checkpoints.cards.choose_cards`).
        model_dir: The model cache.
        device: Where the networks run.
        max_windows: Maximum number of windows per track and network; 0 means all.
        execution: Precision and compilation of transformers.
        loaded: Checkpoints that are already loaded; the tagger is used if it is among them.

    Raises:
        CheckpointError: A checkpoint is not in the cache, or does not match its card.
    """
    tags = cards["tags"][0]
    tagger = next((model for model in loaded if model.model_id == tags.model_id), None)
    if tagger is None:
        tagger = load(tags, model_dir, device, max_windows, execution)
    card = cards["attributes"][0]
    network = None
    if card.network != MAPPING_NETWORK:
        network = load(card, model_dir, device, max_windows, execution)
    return MoodStep(tagger, vocabulary_of(tags, model_dir), network, card.model_id)
