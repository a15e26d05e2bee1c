"""How networks run on a device, for deployments, commands and benchmarks alike."""

import torch

from pipelines.analysis.networks.checkpoint_model import EAGER, Execution
from serve_app.composition.model_args import ExecutionOptions, ModelArgs


def execution_on(device: torch.device, options: ModelArgs) -> Execution:
    """Return how networks are to run on a device; on the CPU the options have no effect."""
    return EAGER if device.type == "cpu" else gpu_execution(options.execution)


def gpu_execution(chosen: ExecutionOptions) -> Execution:
    """Return how networks are to run on a GPU."""
    return Execution(getattr(torch, chosen.dtype), chosen.batch_sizes, chosen.cuda_graphs)
