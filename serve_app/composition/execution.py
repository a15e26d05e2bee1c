"""How networks run on a device, for deployments and commands alike."""

import torch

from pipelines.analysis.checkpoint_model import EAGER, Execution
from serve_app.composition.options import ModelOptions


def execution_on(device: torch.device, options: ModelOptions) -> Execution:
    """Give how transformers run on a device; the CPU takes no notice of the options."""
    if device.type == "cpu":
        return EAGER
    chosen = options.execution
    return Execution(getattr(torch, chosen.dtype), chosen.batch_sizes, chosen.cuda_graphs)
