"""What a training run of the key network does, as one file describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.training.key.fit import KeyFitPlan
from pipelines.training.plan import PlanError, RenderPlan, parsed


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """A whole run."""

    render: RenderPlan
    fit: KeyFitPlan


def parse_key_plan(content: Mapping[str, Any]) -> KeyPlan:
    """Build a plan from a parsed file.

    Raises:
        PlanError: A field is missing or unknown.
    """
    if set(content) != {"render", "fit"}:
        raise PlanError(f"a run has 'render' and 'fit', not {sorted(content)}")
    return KeyPlan(parsed(RenderPlan, content["render"]), parsed(KeyFitPlan, content["fit"]))
