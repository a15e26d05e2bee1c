"""Half precision, and compilation, for the part of a network after its front-end.

The front-end stays in float32 and eager: it uses complex numbers and is a fraction of the work. A
network has a ``precision`` if half precision changes it so little that the cosine of every row with
the same row in float32 is at least .9999; `tests/models/test_precision.py` lists these networks.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class HalvableNetwork(Protocol):
    """A network that can run in half precision."""

    precision: torch.dtype


@runtime_checkable
class TransformerNetwork(HalvableNetwork, Protocol):
    """A network whose trunk can also be compiled."""

    def compile_trunk(self, **options: Any) -> None:
        """Compile the trunk in place; ``options`` are torch.compile's."""
        ...


def in_precision(like: Tensor, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return the context in which to run everything after the front-end.

    Under bfloat16, matrix products, convolutions and attention run in half precision while norms,
    softmax and the residual stream stay in float32.

    Args:
        like: A tensor on the device.
        dtype: float32 (nothing changes) or bfloat16.
    """
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(like.device.type, dtype)


def halve_weights(network: nn.Module) -> None:
    """Store the weights of matrix products in bfloat16, once and in place.

    Autocast would make the same copies in every forward; norms and embeddings keep float32.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            module.to(torch.bfloat16)
