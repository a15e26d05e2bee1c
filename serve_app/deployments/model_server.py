"""What the three model deployments share: a step behind its batchers, fed by object references."""

from typing import Generic, TypeVar

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray import ObjectRef

from pipelines.audio import Waveform
from pipelines.runner import BatchedStep
from pipelines.steps import Step
from serve_app.deployments.options import ModelOptions

R = TypeVar("R")

Pcm = ObjectRef[NDArray[np.float32]]


def resolve_device(device: str) -> torch.device:
    """Turn ``auto`` into the device of this replica."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def assigned_cpus() -> int:
    """Whole CPUs of this replica, at least one."""
    resources = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


class ModelServer(Generic[R]):
    """Runs one step for many tracks at once."""

    def __init__(self, step: Step[R], options: ModelOptions) -> None:
        torch.set_num_threads(assigned_cpus())
        self._step: BatchedStep[R] = BatchedStep(
            step,
            device=resolve_device(options.device),
            max_windows=options.batch_windows,
            max_queued_windows=options.queue_windows,
        )

    async def analyse(self, pcm: list[Pcm], sample_rate: int) -> R:
        """Analyse a track.

        Args:
            pcm: One reference to float32 samples ``[C, T]``; nested, so that the audio is fetched
                here from the object store and never copied through the caller.
            sample_rate: Hz.

        Raises:
            AudioError: The audio is not fit for this analysis.
        """
        samples = await pcm[0]
        return await self._step.run(Waveform(samples, sample_rate))

    async def check_health(self) -> None:
        """Fail when the device no longer computes, so that Serve replaces the replica."""
        self._step.check_health()

    async def ready(self) -> bool:
        """Answer once the model is loaded."""
        return True
