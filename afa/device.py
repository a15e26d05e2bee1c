"""Where networks run."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from afa.errors import AudioError, MachineError
from pipelines.batching.device import is_device_fault, is_out_of_memory

# OpenMP's threads do not survive a fork: a child that asked for several would wait for ever.
os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def resolve_device(device: str) -> torch.device:
    """Turn ``auto`` into the device of this process: a GPU if there is a usable one."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() and not age_fault() else "cpu")


def age_fault(index: int = 0) -> str:
    """Return why a GPU is too old for this build of torch; "" if it is not.

    CUDA finds such a GPU, but every kernel fails on it.
    """
    built_for = re.findall(r"\bsm_(\d+)", " ".join(torch.cuda.get_arch_list()))
    least = min(map(int, built_for), default=0)
    major, minor = torch.cuda.get_device_capability(index)
    if 10 * major + minor >= least:
        return ""
    return (
        f"{torch.cuda.get_device_name(index)} has the compute capability {major}.{minor}, and "
        f"torch {torch.__version__} runs from {least // 10}.{least % 10} on"
    )


def device_here(name: str) -> torch.device:
    """Return the named device, ready for work.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        MachineError: There is no such device, or it is too old.
    """
    try:
        device = resolve_device(name)
        reason = age_fault(device.index or 0) if device.type == "cuda" else ""
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason, *_ = str(error).split("\n")
        raise MachineError(f"no device {name!r} here: {reason}") from error
    if reason:
        raise MachineError(reason)
    return device


@contextmanager
def on_device() -> Iterator[None]:
    """Analyse a file inside this block.

    Raises:
        MachineError: The device failed; every other file would fail on it too.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_device_fault(error):
            raise
        reason, *_ = str(error).split("\n")
        raise MachineError(f"the device broke: {reason}") from error


@contextmanager
def loading() -> Iterator[None]:
    """Load networks onto a device inside this block.

    Raises:
        MachineError: The device failed, or has too little memory for the networks.
    """
    try:
        with on_device():
            yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise MachineError("the device has no memory for the networks") from error


def no_memory_for(path: Path) -> AudioError:
    """Return the error for a file for which the device has too little memory."""
    return AudioError(path, "audio_too_long", "the device has too little free memory for it")
