"""What a training run does, as one file describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


MODULES = "module"
"""The kind of clips that tracker modules are."""


class PlanError(ValueError):
    """The description of a run is incomplete or contradicts itself."""


@dataclass(frozen=True, slots=True)
class RenderPlan:
    """The data.

    Attributes:
        hours: Audio rendered.
        clip_s: Seconds of a clip before the tape's speed is changed.
        seed: First clip's seed; clip i has seed + i.
        shares: Share of each kind of music.
        validation_every: Every so many-th seed is for validation only.
        held_out_clips: Clips on the sounds that are left out of training.
        packages: Debian packages unpacked.
        fonts: Soundfont → weight; paths below the unpacked packages.
        drum_fonts: Soundfont for drums → weight.
        kits: Folder of Hydrogen's drum kits.
        held_out_fonts: Soundfonts only heard in the held-out set.
        held_out_kits: Kits only heard in the held-out set.
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
        batch: Segments of a step.
        segment_frames: Frames of a segment, 50 a second.
        peak_rate: Learning rate at the end of the warm-up (one cycle).
        warm_up: Share of the steps that the rate rises in.
        weight_decay: AdamW's.
        ema_decay: Of the averaged weights, which are what is kept.
        downbeat_weight: Of the downbeats' loss against the beats'.
        tempo_weight: Of the tempo head's loss.
        neighbour: Target on the frames beside a beat.
        mixup: Share of segments that carry a second one, faintly.
        shares: Share of each kind in a batch; the rendered shares where it is empty.
        data_fraction: Share of the clips used (for learning curves).
        seed: Initial weights, dropout and the draw of segments.
        checkpoint_s: Seconds between checkpoints.
        channels: Width of the network.
        n_blocks: Blocks of the network.
        dropout: Probability.
        initial: Exported weights that this run begins from; none where empty.
        initial_share: Their share in what is exported; the rest is the run's own.
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
        modules: Debian packages with tracker modules, which are clips of the kind ``module``.
    """

    render: RenderPlan
    fit: FitPlan
    modules: Sequence[str] = ()


def parse_plan(content: Mapping[str, Any]) -> Plan:
    """Build a plan from a parsed file.

    Raises:
        PlanError: A field is missing or unknown, or shares are not positive.
    """
    if set(content) - {"modules"} != {"render", "fit"}:
        raise PlanError(f"a run has 'render' and 'fit' (and 'modules'), not {sorted(content)}")
    plan = Plan(
        parsed(RenderPlan, content["render"]),
        parsed(FitPlan, content["fit"]),
        content.get("modules", ()),
    )
    if not plan.render.shares or min(plan.render.shares.values()) < 0:
        raise PlanError("render.shares must name kinds with shares that are not negative")
    unknown = set(plan.fit.shares) - set(plan.render.shares)
    if unknown - ({MODULES} if plan.modules else set()):
        raise PlanError(f"fit.shares names kinds that are not rendered: {sorted(unknown)}")
    return plan


def parsed(kind: type[_Part], content: Mapping[str, Any]) -> _Part:
    """Build a part of a plan from the fields of a parsed file.

    Raises:
        PlanError: A field is missing or unknown.
    """
    known = {field.name for field in fields(kind)}
    missing, surplus = known - set(content), set(content) - known
    if missing or surplus:
        raise PlanError(f"{kind.__name__}: missing {sorted(missing)}, unknown {sorted(surplus)}")
    return kind(**content)


def below(root: Path, names: Mapping[str, int]) -> list[Path]:
    """Give paths below `root`, each as often as its weight says."""
    return [root / name for name, weight in names.items() for _ in range(weight)]
