"""Write trained networks as the checkpoint that afa ships."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from models.checkpoints.weight_files import write_tensors
from models.rhythm.network import BeatNetwork
from pipelines.training.cycle import require_finite
from pipelines.training.fit import GO_ON, INITIAL, fitting
from pipelines.training.plan import FitPlan


def export(networks: Sequence[BeatNetwork], target: Path, details: dict[str, str]) -> None:
    """Write one network, or several to be averaged, as half-precision safetensors.

    Args:
        networks: Trained networks; several are named ``1.<name>``, ``2.<name>``, ….
        target: The file; it appears whole or not at all.
        details: Stored in the file's header.

    Raises:
        PlanError: See `require_finite`.
    """
    tensors = {}
    for number, network in enumerate(networks, start=1):
        require_finite(network)
        prefix = f"{number}." if len(networks) > 1 else ""
        for name, tensor in network.state_dict().items():
            tensors[prefix + name] = tensor.detach().cpu().half().contiguous()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    write_tensors(tensors, part, metadata={"licence": "Apache-2.0", **details})
    part.replace(target)


def read_checkpoint(path: Path, plan: FitPlan) -> BeatNetwork:
    """Read a run's result: the averaged weights, mixed with the initial ones."""
    network = BeatNetwork(plan.channels, plan.n_blocks)
    with fitting(path, GO_ON):
        network.load_state_dict(torch.load(path, weights_only=True, map_location="cpu")["averaged"])
    if plan.initial:
        with fitting(Path(plan.initial), INITIAL):
            first = load_file(plan.initial)
            for name, weight in network.state_dict().items():
                weight.lerp_(first[name].to(weight.dtype), plan.initial_share)
    return network.eval()
