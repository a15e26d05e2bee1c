"""One cycle of the learning rate, and weights that are averaged during training."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from models.checkpoints.weight_files import write_tensors
from pipelines.training.plan import PlanError, RenderPlan, check_parts, check_shares, parsed

_BETAS = (0.9, 0.98)
_LAST_RATE = 1e-3
_CLIP_NORM = 1.0


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """A training in memory.

    Attributes:
        steps: Optimiser steps.
        batch: Segments per step.
        segment_frames: Frames per segment.
        peak_rate: Learning rate at the end of the warm-up (one cycle).
        warm_up_steps: Steps in which the rate rises.
        weight_decay: AdamW's.
        ema_decay: Decay of the averaged weights, which are the result.
        seed: For the initial weights and the draw of segments.
    """

    steps: int
    batch: int
    segment_frames: int
    peak_rate: float
    warm_up_steps: int
    weight_decay: float
    ema_decay: float
    seed: int


@dataclass(frozen=True, slots=True)
class CycleRun:
    """A whole run: the data and the training."""

    render: RenderPlan
    fit: CyclePlan


def parse_run(content: Any) -> CycleRun:
    """Build a run from a parsed file.

    Raises:
        PlanError: A field is missing, unknown or of the wrong type.
    """
    check_parts(content, "render", "fit")
    run = CycleRun(parsed(RenderPlan, content["render"]), parsed(CyclePlan, content["fit"]))
    check_shares(run.render)
    return run


class Cycle:
    """Trains a network with AdamW and keeps the mean of its weights in a second one of its kind.

    Args:
        plan: The training.
        network: The network to train.
        averaged: Gets the network's weights, and then their mean.
        also: Parameters that are trained but not averaged.
    """

    def __init__(
        self,
        plan: CyclePlan,
        network: nn.Module,
        averaged: nn.Module,
        also: Iterable[nn.Parameter] = (),
    ) -> None:
        self._plan, self._network, self._averaged = plan, network, averaged
        averaged.load_state_dict(network.state_dict())
        self._optimiser = torch.optim.AdamW(
            [*network.parameters(), *also],
            plan.peak_rate,
            betas=_BETAS,
            weight_decay=plan.weight_decay,
        )

    def step(self, step: int, loss: Tensor) -> None:
        """Learn from a loss; steps begin at 0."""
        plan = self._plan
        rise = min(1.0, (step + 1) / plan.warm_up_steps)
        fall = 0.5 * (1 + math.cos(math.pi * step / plan.steps))
        for group in self._optimiser.param_groups:
            group["lr"] = plan.peak_rate * rise * (fall + _LAST_RATE)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.parameters(), _CLIP_NORM)
        self._optimiser.step()
        self._average(step)

    def _average(self, step: int) -> None:
        """Move the averaged weights: quickly at first, so that the start is forgotten."""
        keep = min(self._plan.ema_decay, (1 + step) / (10 + step))
        with torch.no_grad():
            for mean, new in zip(
                self._averaged.parameters(), self._network.parameters(), strict=True
            ):
                mean.lerp_(new, 1 - keep)
            kept = dict(self._averaged.named_buffers())
            for name, buffer in self._network.named_buffers():
                kept[name].copy_(buffer)


def split_clips(paths: Sequence[Path], validation_every: int) -> tuple[list[Path], list[Path]]:
    """Split clips named ``<kind>_<seed>.npz`` into training and every n-th seed for validation."""
    training: list[Path] = []
    validation: list[Path] = []
    for path in paths:
        if path.name.endswith(".part.npz"):  # left by a killed run
            continue
        is_kept_back = int(path.stem.rpartition("_")[2]) % validation_every == 0
        (validation if is_kept_back else training).append(path)
    return training, validation


def require_finite(network: nn.Module) -> None:
    """Refuse the weights of a diverged training.

    Raises:
        PlanError: A weight is not finite.
    """
    if not all(bool(tensor.isfinite().all()) for tensor in network.state_dict().values()):
        raise PlanError("the training diverged: its weights are not finite; lower fit.peak_rate")


def write(network: nn.Module, target: Path) -> None:
    """Write the weights; the file appears whole or not at all.

    Raises:
        PlanError: See `require_finite`.
    """
    require_finite(network)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    write_tensors(tensors, part, metadata={"licence": "Apache-2.0"})
    part.replace(target)
