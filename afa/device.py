"""Where networks run."""

import torch

from afa.errors import MachineError


def resolve_device(device: str) -> torch.device:
    """Turn ``auto`` into the device of this process: a GPU where there is one."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_here(name: str) -> torch.device:
    """Give a device that takes work.

    Args:
        name: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        MachineError: There is no such device.
    """
    try:
        device = resolve_device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason, *_ = str(error).split("\n")
        raise MachineError(f"no device {name!r} here: {reason}") from error
    return device
