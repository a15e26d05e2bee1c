"""The plan of a training run, as one file describes it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


MODULES = "module"
"""The kind of clips from tracker modules."""

KINDS = ("band", "classical", "corpus", "electronic", "groove")
"""The kinds of invented music, see `pipelines.training.render.generators_of`."""


_POSITIVE = frozenset(
    {
        *("steps", "batch", "segment_frames", "peak_rate", "warm_up_steps", "channels"),
        *("n_blocks", "clip_s", "hours", "tracks_of_a_package", "n_parts", "part_s"),
    }
)
_SHARES = frozenset({"warm_up", "ema_decay", "dropout"})
_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    Sequence: "a list",
    Mapping: "names with numbers",
}


class PlanError(ValueError):
    """The description of a run is incomplete or contradicts itself."""


@dataclass(frozen=True, slots=True)
class RenderPlan:
    """The data.

    Attributes:
        hours: Hours of audio to render.
        clip_s: Seconds of a clip before its tape speed is changed.
        seed: First clip's seed; clip i has seed + i.
        shares: Share of each kind of music.
        validation_every: Every n-th seed is for validation only.
        held_out_clips: Number of clips with the sounds that are left out of training.
        packages: Debian packages to unpack.
        fonts: Soundfont → weight; paths below the unpacked packages.
        drum_fonts: Soundfont for drums → weight.
        kits: Folder of Hydrogen's drum kits.
        held_out_fonts: Soundfonts used only in the held-out set.
        held_out_kits: Kits used only in the held-out set.
        development_set: Annotations whose tracks' sources are left out.
    """

    hours: float
    clip_s: float
    seed: int
    shares: Mapping[str, float]
    validation_every: int
    held_out_clips: int
    packages: Sequence[str]
    fonts: Mapping[str, int]
    drum_fonts: Mapping[str, int]
    kits: str
    held_out_fonts: Sequence[str]
    held_out_kits: Sequence[str]
    development_set: str

    @property
    def n_clips(self) -> int:
        """Clips of the training and validation set."""
        return round(self.hours * 3600 / self.clip_s)


@dataclass(frozen=True, slots=True)
class FitPlan:
    """The training.

    Attributes:
        steps: Optimiser steps.
        batch: Segments per step.
        segment_frames: Frames per segment, 50 per second.
        peak_rate: Learning rate at the end of the warm-up (one cycle).
        warm_up: Share of the steps in which the rate rises.
        weight_decay: AdamW's.
        ema_decay: Decay of the averaged weights, which are the result.
        downbeat_weight: Weight of the downbeats' loss relative to the beats'.
        tempo_weight: Weight of the tempo head's loss.
        neighbour: Target on the frames next to a beat.
        mixup: Share of segments with a second one mixed in faintly.
        shares: Share of each kind in a batch; if empty, the rendered shares.
        data_fraction: Share of the clips used (for learning curves).
        seed: For the initial weights, dropout and the draw of segments.
        checkpoint_s: Seconds between checkpoints.
        channels: Width of the network.
        n_blocks: Blocks of the network.
        dropout: Dropout probability.
        initial: Exported weights that this run starts from; none if empty.
        initial_share: Their share in the exported weights; the rest is the run's own.
    """

    steps: int
    batch: int
    segment_frames: int
    peak_rate: float
    warm_up: float
    weight_decay: float
    ema_decay: float
    downbeat_weight: float
    tempo_weight: float
    neighbour: float
    mixup: float
    shares: Mapping[str, float]
    data_fraction: float
    seed: int
    checkpoint_s: float
    channels: int
    n_blocks: int
    dropout: float
    initial: str
    initial_share: float


_Part = TypeVar("_Part", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run.

    Attributes:
        render: The rendered data.
        fit: The training.
        modules: Debian packages with tracker modules, which become clips of the kind ``module``.
    """

    render: RenderPlan
    fit: FitPlan
    modules: Sequence[str] = ()


def parse_plan(content: Any) -> Plan:
    """Build a plan from a parsed file.

    Raises:
        PlanError: A field is missing, unknown or of the wrong type, or shares are not positive.
    """
    check_parts(content, "render", "fit", optional="modules")
    modules = content.get("modules", ())
    _check("modules", Sequence, modules)
    plan = Plan(
        parsed(RenderPlan, content["render"]),
        parsed(FitPlan, content["fit"]),
        modules,
    )
    check_shares(plan.render)
    unknown = set(plan.fit.shares) - set(plan.render.shares)
    if unknown - ({MODULES} if plan.modules else set()):
        raise PlanError(f"fit.shares names kinds that are not rendered: {sorted(unknown)}")
    return plan


def check_shares(plan: RenderPlan) -> None:
    """Check that music can be drawn by a plan's shares, and with sounds that are held out.

    Raises:
        PlanError: Shares name no kind or an unknown one, or are negative or all 0; or there are no
            sounds for the clips held out.
    """
    shares = plan.shares or {}
    if not shares or min(shares.values()) < 0 or not any(shares.values()):
        raise PlanError("render.shares must name kinds with shares above 0, none of them negative")
    if unknown := set(shares) - set(KINDS):
        raise PlanError(f"render.shares: {sorted(unknown)} are none of {', '.join(KINDS)}")
    if plan.held_out_clips and not (plan.held_out_fonts and plan.held_out_kits):
        raise PlanError("render.held_out_clips needs render.held_out_fonts and held_out_kits")


def parsed(kind: type[_Part], content: Any) -> _Part:
    """Build a part of a plan from the fields of a parsed file.

    Raises:
        PlanError: A field is missing, unknown, of the wrong type, or must be above 0 and is not.
    """
    if not isinstance(content, Mapping):
        raise PlanError(f"{kind.__name__} has fields, not {content!r}")
    known = get_type_hints(kind)
    missing, surplus = known.keys() - content.keys(), content.keys() - known.keys()
    if missing or surplus:
        told = f"missing {sorted(missing)}, unknown {sorted(surplus, key=str)}"
        raise PlanError(f"{kind.__name__}: {told}")
    for name, value in content.items():
        _check(f"{kind.__name__}: {name}", get_origin(known[name]) or known[name], value)
        if name in _POSITIVE and value <= 0:
            raise PlanError(f"{kind.__name__}: {name} must be above 0, not {value}")
        if name in _SHARES and not 0 <= value < 1:
            raise PlanError(f"{kind.__name__}: {name} must be 0 or more and below 1, not {value}")
        if name == "validation_every" and value < 2:
            raise PlanError(f"{kind.__name__}: {name} must be 2 or more, not {value}")
    return kind(**content)


def check_parts(content: Any, *names: str, optional: str = "") -> None:
    """Check that a parsed file has the parts of a run.

    Raises:
        PlanError: It has other parts, or none.
    """
    found = set(content) if isinstance(content, Mapping) else set()
    if found - {optional} != set(names):
        wanted = " and ".join(map(repr, names)) + (f" (and {optional!r})" if optional else "")
        raise PlanError(f"a run has {wanted}, not {', '.join(map(repr, found)) or 'nothing'}")


def _check(name: str, kind: type, value: object) -> None:
    if value is None and kind not in (int, float):
        return  # as if it were empty
    allowed = (int, float) if kind is float else kind
    is_text = isinstance(value, str) and kind is not str
    is_right = isinstance(value, allowed) and not is_text and not isinstance(value, bool)
    if is_right and isinstance(value, float):
        is_right = math.isfinite(value)
    if is_right and isinstance(value, Mapping):
        is_right = all(isinstance(weight, int | float) for weight in value.values())
    if not is_right:
        raise PlanError(f"{name} is {_KINDS[kind]}, not {value!r}")


def below(root: Path, names: Mapping[str, int]) -> list[Path]:
    """Return paths below `root`, each repeated according to its weight."""
    return [root / name for name, weight in names.items() for _ in range(weight)]
