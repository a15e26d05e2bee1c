"""Half precision and compilation for the transformer part of a network.

The front-end stays in float32 and eager: it has complex numbers and is a fraction of the work.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class TransformerNetwork(Protocol):
    """A network whose trunk can run in half precision and be compiled."""

    dtype: torch.dtype

    def compile_trunk(self, **options: Any) -> None:
        """Compile the trunk in place; ``options`` are torch.compile's."""
        ...


def trunk_precision(like: Tensor, dtype: torch.dtype) -> torch.autocast:
    """Give the context in which a trunk runs.

    Under bfloat16, matrix products and attention run in half precision while norms, softmax and the
    residual stream stay in float32: the cosine of an embedding to its float32 value stays above
    .9999.

    Args:
        like: A tensor on the device.
        dtype: float32 (nothing changes) or bfloat16.
    """
    return torch.autocast(like.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def halve_weights(network: nn.Module) -> None:
    """Store the weights of matrix products in bfloat16, once and in place.

    Autocast would make the same copies in every forward; norms and embeddings keep float32.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            module.to(torch.bfloat16)
