"""Convolutions of published checkpoints with their inference-time batch norms folded in."""

from collections.abc import Mapping

from torch import Tensor, nn


def folded(
    tensors: Mapping[str, Tensor],
    name: str,
    epsilon: float,
    stride: int = 1,
    depthwise: bool = False,
) -> nn.Conv2d:
    """Build the convolution ``name.0`` with the batch norm ``name.1`` folded in.

    Args:
        tensors: The checkpoint.
        name: Of the pair of layers.
        epsilon: What the norm adds to its variance.
        stride: Of the convolution, both ways.
        depthwise: Whether each channel has a filter of its own.
    """
    deviation = (tensors[name + ".1.running_var"] + epsilon).sqrt()
    scale = tensors[name + ".1.weight"] / deviation
    pair = {
        f"{name}.weight": tensors[name + ".0.weight"] * scale[:, None, None, None],
        f"{name}.bias": tensors[name + ".1.bias"] - tensors[name + ".1.running_mean"] * scale,
    }
    return convolution(pair, name, stride, depthwise)


def convolution(
    tensors: Mapping[str, Tensor], name: str, stride: int = 1, depthwise: bool = False
) -> nn.Conv2d:
    """Build a convolution with a square kernel and "same" padding from its weight and bias."""
    n_out, n_in, kernel_size = tensors[name + ".weight"].shape[:3]
    layer = nn.Conv2d(
        n_out if depthwise else n_in,
        n_out,
        kernel_size,
        stride,
        padding=kernel_size // 2,
        groups=n_out if depthwise else 1,
    )
    layer.load_state_dict(under(name + ".", tensors))
    return layer


def linear(tensors: Mapping[str, Tensor], name: str) -> nn.Linear:
    """Build a dense layer from its weight and bias."""
    n_out, n_in = tensors[name + ".weight"].shape
    layer = nn.Linear(n_in, n_out)
    layer.load_state_dict(under(name + ".", tensors))
    return layer


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give the tensors whose names begin with ``prefix``, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
