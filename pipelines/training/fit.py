"""Train the beat network: AdamW over one cycle of the learning rate, averaged weights.

A checkpoint holds everything that the next step depends on.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Event, Thread

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from models.rhythm.network import BeatLogits, BeatNetwork
from pipelines.training.dataset import Batch, Sampler
from pipelines.training.kept import told_as
from pipelines.training.plan import FitPlan, PlanError

_CLIP_NORM = 1.0
_BETAS = (0.9, 0.98)
_LAST_RATE = 1e-3
_BEAT_WEIGHT = 1.5
_DOWNBEAT_WEIGHT = 2.0
"""How much more a frame with an event counts than one without."""
_QUEUED = 4

GO_ON = "remove it to train from the beginning"
INITIAL = "correct fit.initial"


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """A run's step and mean losses since the last report."""

    step: int
    steps: int
    beat_loss: float
    downbeat_loss: float
    tempo_loss: float


def fitting(path: Path, remedy: str) -> AbstractContextManager[None]:
    """Report errors of reading weights into a network.

    Raises:
        PlanError: They are damaged, or do not fit the described network.
        OSError: The file does not exist, or is not readable.
    """
    return told_as(
        f"{path} is damaged, or not of a network of fit.channels and fit.n_blocks; {remedy}"
    )


def rate_at(step: int, plan: FitPlan) -> float:
    """Return the learning rate of a step: a linear rise, then half a cosine."""
    done = step / plan.steps
    rise = min(1.0, (step + 1) / max(1.0, plan.warm_up * plan.steps))
    fall = 0.5 * (1 + math.cos(math.pi * max(0.0, done - plan.warm_up) / (1 - plan.warm_up)))
    return plan.peak_rate * (rise * fall + _LAST_RATE)


def losses(logits: BeatLogits, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of beats, downbeats and tempo, each a mean over frames inside the clips."""
    beat = _pulse_loss(logits.beat, batch.beats, batch.heard, _BEAT_WEIGHT)
    downbeat = _pulse_loss(logits.downbeat, batch.downbeats, batch.heard, _DOWNBEAT_WEIGHT)
    known = batch.tempi.sum(dim=-1)
    entropy = -(batch.tempi * logits.tempo.float().log_softmax(-1)).sum(dim=-1)
    return beat, downbeat, entropy.sum() / known.sum().clamp_min(1.0)


def _pulse_loss(logits: Tensor, target: Tensor, heard: Tensor, weight: float) -> Tensor:
    each = functional.binary_cross_entropy_with_logits(
        logits.float(), target, reduction="none", pos_weight=torch.tensor(weight)
    )
    return (each * heard).sum() / heard.sum().clamp_min(1.0)


class Trainer:
    """A run that can stop after any step and continue from its checkpoint."""

    def __init__(self, plan: FitPlan, sampler: Sampler, device: torch.device) -> None:
        self._plan, self._sampler, self._device = plan, sampler, device
        torch.manual_seed(plan.seed)
        self._network = self._build()
        if plan.initial:
            with fitting(Path(plan.initial), INITIAL):
                self._network.load_state_dict(load_file(plan.initial, str(device)))
        self.averaged = self._build()
        self.averaged.load_state_dict(self._network.state_dict())
        self.averaged.eval().requires_grad_(False)
        self._optimiser = torch.optim.AdamW(
            self._network.parameters(),
            plan.peak_rate,
            betas=_BETAS,
            weight_decay=plan.weight_decay,
        )
        self.step = 0

    def _build(self) -> BeatNetwork:
        plan = self._plan
        network = BeatNetwork(plan.channels, plan.n_blocks, plan.dropout).to(self._device)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def save(self, path: Path) -> None:
        """Write a checkpoint; it appears whole or not at all."""
        part = path.with_suffix(".part")
        state = {
            "network": self._network.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "step": self.step,
        }
        torch.save(state, part)
        part.replace(path)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises:
            PlanError: It is damaged, of a network of another size, or of a longer run.
        """
        with fitting(path, GO_ON):
            state = torch.load(path, weights_only=True, map_location=self._device)
            self._network.load_state_dict(state["network"])
            self.averaged.load_state_dict(state["averaged"])
            self._optimiser.load_state_dict(state["optimiser"])
            self.step = int(state["step"])
        if self.step > self._plan.steps:
            raise PlanError(
                f"{path} is of another run: it has {self.step} steps, and fit.steps is "
                f"{self._plan.steps}; use another --work, or {GO_ON}"
            )

    def run(
        self,
        checkpoint: Path,
        told: Callable[[TrainingProgress], None],
        until: int | None = None,
        report_every: int = 50,
    ) -> None:
        """Train up to step `until` (the plan's end if None), saving from time to time."""
        last = min(self._plan.steps, until or self._plan.steps)
        saved = time.monotonic()
        total, n_steps = torch.zeros(3), 0
        for batch in _ahead(self._sampler, self.step, last):
            total += self.train_step(batch)
            n_steps += 1
            if self.step % report_every == 0 or self.step == last:
                told(TrainingProgress(self.step, self._plan.steps, *(total / n_steps).tolist()))
                total, n_steps = torch.zeros(3), 0
            if time.monotonic() - saved > self._plan.checkpoint_s:
                self.save(checkpoint)
                saved = time.monotonic()
        self.save(checkpoint)

    def train_step(self, batch: Batch) -> Tensor:
        """Take one step; return the loss of beats, downbeats and tempo."""
        plan = self._plan
        torch.manual_seed(plan.seed * 1_000_003 + self.step)  # Dropout depends only on the step.
        for group in self._optimiser.param_groups:
            group["lr"] = rate_at(self.step, plan)
        self._network.train()
        batch = Batch(*(part.to(self._device, non_blocking=True) for part in batch))
        with torch.autocast(self._device.type, torch.bfloat16):
            logits = self._network(batch.features)
        beat, downbeat, tempo = losses(logits, batch)
        loss = beat + plan.downbeat_weight * downbeat + plan.tempo_weight * tempo
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._network.parameters(), _CLIP_NORM)
        self._optimiser.step()
        self.step += 1
        self._average()
        return torch.stack([beat, downbeat, tempo]).detach().cpu()

    def _average(self) -> None:
        """Move the averaged weights: quickly at first, so that the start is forgotten."""
        keep = min(self._plan.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            pairs = zip(self.averaged.parameters(), self._network.parameters(), strict=True)
            for mean, weight in pairs:
                mean.lerp_(weight, 1 - keep)


def _ahead(sampler: Sampler, first: int, last: int) -> Iterator[Batch]:
    """Draw batches in a thread, a few ahead, in order."""
    queue: Queue[Batch | BaseException] = Queue(_QUEUED)
    stopped = Event()

    def draw() -> None:
        try:
            for step in range(first, last):
                if stopped.is_set():
                    return
                queue.put(sampler.batch(step))
        except BaseException as error:  # noqa: BLE001
            queue.put(error)

    thread = Thread(target=draw, daemon=True)
    thread.start()
    try:
        for _ in range(first, last):
            batch = queue.get()
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        stopped.set()
        while thread.is_alive():
            while not queue.empty():
                queue.get()
            thread.join(0.05)
