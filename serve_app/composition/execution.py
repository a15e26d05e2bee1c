"""Where networks run and how, for deployments and commands alike."""

import torch

from pipelines.analysis.checkpoint_model import EAGER, Execution
from serve_app.composition.options import ModelOptions


def resolve_device(device: str) -> torch.device:
    """Turn ``auto`` into the device of this process: a GPU where there is one."""
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def execution_on(device: torch.device, options: ModelOptions) -> Execution:
    """Give how transformers run on a device; the CPU takes no notice of the options."""
    if device.type == "cpu":
        return EAGER
    chosen = options.execution
    return Execution(getattr(torch, chosen.dtype), chosen.batch_sizes, chosen.cuda_graphs)
