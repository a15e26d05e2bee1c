"""The plan of a run that learns the embedding's projection, as one file describes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.training.plan import parsed


@dataclass(frozen=True, slots=True)
class EmbeddingPlan:
    """A run.

    Attributes:
        packages: Debian packages with music; each counts as an album.
        tracks_of_a_package: Maximum, drawn at random, so that no package outweighs the others.
        shortest_s: Shorter files are sounds, not music.
        longest_s: Longer files are left out.
        n_parts: Stretches analysed of each track, evenly spread.
        part_s: Length of a stretch.
        ridge: Added to the variance within tracks, as a multiple of its mean.
        seed: For the draw of tracks, stretches and their alterations.
    """

    packages: Sequence[str]
    tracks_of_a_package: int
    shortest_s: float
    longest_s: float
    n_parts: int
    part_s: float
    ridge: float
    seed: int


def parse_embedding_plan(content: Any) -> EmbeddingPlan:
    """Build a plan from a parsed file.

    Raises:
        PlanError: A field is missing or unknown.
    """
    return parsed(EmbeddingPlan, content)
