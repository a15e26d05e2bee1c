"""The plan of a run that trains the evidence network, as one file describes it."""

from dataclasses import dataclass
from typing import Any

from pipelines.training.cycle import CyclePlan
from pipelines.training.plan import PlanError, check_parts, parsed


@dataclass(frozen=True, slots=True)
class LandmarksRun:
    """A whole run.

    Attributes:
        validation_every: Every n-th track is for validation only.
        fit: The training; a segment's frames are those of landmarks, 43 per second.
    """

    validation_every: int
    fit: CyclePlan


def parse_landmarks_run(content: Any) -> LandmarksRun:
    """Build a run from a parsed file.

    Raises:
        PlanError: A field is missing or unknown, or no track would be left for training.
    """
    check_parts(content, "validation_every", "fit")
    validation_every = content["validation_every"]
    if type(validation_every) is not int or validation_every < 2:
        raise PlanError(f"validation_every must be 2 or more, not {validation_every!r}")
    return LandmarksRun(validation_every, parsed(CyclePlan, content["fit"]))
