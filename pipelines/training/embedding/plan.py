"""What a run that learns the projection of the embedding does, as one file describes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.training.plan import parsed


@dataclass(frozen=True, slots=True)
class EmbeddingPlan:
    """A run.

    Attributes:
        packages: Debian packages with music; each counts as an album.
        tracks_of_a_package: At most so many, drawn, so that no package outweighs the others.
        shortest_s: Shorter files are sounds, not music.
        longest_s: Longer files are left out.
        n_parts: Stretches that are heard of each track, evenly spread.
        part_s: Length of a stretch.
        ridge: What is added to the variance within tracks, in its mean.
        seed: Draws tracks, stretches and what happens to them.
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
