"""Where networks run."""

import torch


def resolve_device(device: str) -> torch.device:
    """Turn ``auto`` into the device of this process: a GPU where there is one."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
