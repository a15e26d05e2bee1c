"""The device that a replica was given, and whether it exists."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import ray
import torch

from afa.device import age_fault, resolve_device
from pipelines.analysis.networks.checkpoint_model import Execution
from serve_app.domain.telemetry.metrics import DEVICE

logger = logging.getLogger(__name__)


CONTEXT_BYTES = 768 << 20
"""Memory on a card for one process's driver, kernels and libraries: estimated, not measured."""


class DeviceMissingError(RuntimeError):
    """A GPU was requested, but CUDA finds none."""


def assigned_cpus() -> int:
    """Return the number of whole CPUs of this replica, at least one."""
    return max(1, int(_assigned("CPU", 1)))


def _assigned(resource: str, otherwise: float) -> float:
    resources = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    return float(resources.get(resource, otherwise))


def replica_device(wanted: str) -> torch.device:
    """Return the device of this replica.

    Args:
        wanted: The setting: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        DeviceMissingError: Ray gave this replica a share of a GPU, or the setting names one, but
            CUDA finds none: on the CPU it would serve its part of the traffic at a fraction of the
            speed. Or CUDA finds GPUs other than the one named, or one that is too old.
    """
    n_gpus = _assigned("GPU", 0)
    device = resolve_device(wanted)
    is_expected = device.type == "cuda" or (wanted == "auto" and n_gpus > 0)
    if is_expected and not torch.cuda.is_available():
        raise DeviceMissingError(
            f"{n_gpus:g} GPU given, AFA_DEVICE={wanted}, but torch {torch.__version__} finds no "
            "CUDA: look at the driver (nvidia-smi), at CUDA_VISIBLE_DEVICES and whether torch is "
            "a CPU build; AFA_DEVICE=cpu runs on the CPU all the same"
        )
    if device.index and device.index >= torch.cuda.device_count():
        raise DeviceMissingError(
            f"{n_gpus:g} GPU given, AFA_DEVICE={wanted}, but {torch.cuda.device_count()} seen "
            "here, counted from 0: where Ray gives cards, a replica sees its own alone, and "
            "AFA_DEVICE=auto finds it"
        )
    if is_expected and (fault := age_fault(device.index or 0)):
        raise DeviceMissingError(f"{fault}; AFA_DEVICE=cpu runs on the CPU all the same")
    return device


def keep_to_share(device: torch.device) -> None:
    """Limit the memory that this replica takes on its card to its share.

    Ray only counts shares: without this, the first replica could leave nothing for the second. What
    CUDA itself takes in each process is part of the share.
    """
    if device.type != "cuda" or not 0 < (share := _assigned("GPU", 0)) < 1:
        return
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(share - CONTEXT_BYTES / total, device.index or 0)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how a replica runs a checkpoint."""

    device: torch.device
    execution: Execution

    @property
    def name(self) -> str:
        """The device's product name, precision and the compiled batch sizes."""
        on_gpu = self.device.type == "cuda"
        words = [torch.cuda.get_device_name(self.device) if on_gpu else "cpu"]
        words.append(str(self.execution.dtype).removeprefix("torch."))
        if on_gpu and self.execution.dtype == torch.float32:
            words.append("with TF32 convolutions")
        if self.execution.batch_sizes:
            words.append(f"compiled for {', '.join(map(str, self.execution.batch_sizes))}")
        return " ".join(words)


class PlacementGauge:
    """Shows operators which checkpoint runs where: 1 for each one in use."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def show(self, placed: Mapping[str, Placement]) -> None:
        """Record that exactly these models, by id, are loaded."""
        names = {model_id: placement.name for model_id, placement in placed.items()}
        for model_id, name in self._shown.items() - names.items():
            DEVICE.record(0, model=model_id, device=name)
        for model_id, name in names.items() - self._shown.items():
            logger.info("%s on %s", model_id, name)
        for model_id, name in names.items():  # again each time: Ray forgets a gauge that is not set
            DEVICE.record(1, model=model_id, device=name)
        self._shown = names
