"""What a run that trains the evidence network does, as one file describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.training.cycle import CyclePlan
from pipelines.training.plan import PlanError, parsed


@dataclass(frozen=True, slots=True)
class LandmarksRun:
    """A whole run.

    Attributes:
        validation_every: Every so many-th track is for validation only.
        fit: The training; a segment's frames are those of landmarks, 43 a second.
    """

    validation_every: int
    fit: CyclePlan


def parse_landmarks_run(content: Mapping[str, Any]) -> LandmarksRun:
    """Build a run from a parsed file.

    Raises:
        PlanError: A field is missing or unknown, or no track would be left for training.
    """
    if set(content) != {"validation_every", "fit"}:
        raise PlanError(f"a run has 'validation_every' and 'fit', not {sorted(content)}")
    validation_every = content["validation_every"]
    if validation_every < 2:
        raise PlanError(f"validation_every must be 2 or more, not {validation_every}")
    return LandmarksRun(validation_every, parsed(CyclePlan, content["fit"]))
