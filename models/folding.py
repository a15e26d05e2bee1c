"""Convolutions of published checkpoints with their inference-time batch norms folded in."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Activation = Literal["none", "relu", "swish", "hardswish"]

_ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "swish": functional.silu,
    "hardswish": functional.hardswish,
}
_HAS_FUSED = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and torch.backends.cpu.get_cpu_capability().startswith("AVX")
)


class Convolution(nn.Conv2d):
    """A convolution with "same" padding, followed by its activation.

    On an x86 processor both run as one pass of oneDNN with channels innermost, as with torch's own
    compiler: these networks spend most of their time reading and writing large images. This does
    not apply under autograd or in half precision.

    Args:
        shape: Shape of the weight.
        stride: Stride in both directions.
        depthwise: Whether each channel has its own filter.
        activation: The activation.
    """

    def __init__(
        self, shape: torch.Size, stride: int, depthwise: bool, activation: Activation
    ) -> None:
        n_out, n_in, kernel_size = shape[:3]
        super().__init__(
            n_out if depthwise else n_in,
            n_out,
            kernel_size,
            stride,
            padding=kernel_size // 2,
            groups=n_out if depthwise else 1,
        )
        self._activation: Activation = activation
        self._packed: Tensor | None = None

    def forward(self, image: Tensor) -> Tensor:
        """Map ``[B, C, H, W]`` to ``[B, C', ⌈H / stride⌉, ⌈W / stride⌉]``."""
        if not self._is_fused(image):
            return _ACTIVATIONS[self._activation](super().forward(image))
        image = image.contiguous(memory_format=torch.channels_last)
        geometry = self.padding, self.stride, self.dilation, self.groups
        if self._packed is None:  # in the order in which the processor reads it
            self._packed = torch.ops.aten.mkldnn_reorder_conv2d_weight(
                self.weight.detach().to_mkldnn(), *geometry, image.shape
            )
        activated: Tensor = torch.ops.mkldnn._convolution_pointwise(
            image, self._packed, self.bias, *geometry, self._activation, [], ""
        )
        return activated

    def _is_fused(self, image: Tensor) -> bool:
        return (
            _HAS_FUSED
            and image.device.type == "cpu"
            and image.dtype == self.weight.dtype == torch.float32
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
        )


def folded(
    tensors: Mapping[str, Tensor],
    name: str,
    epsilon: float,
    stride: int = 1,
    depthwise: bool = False,
    activation: Activation = "none",
) -> Convolution:
    """Build the convolution ``name.0`` with the batch norm ``name.1`` folded in.

    Args:
        tensors: The checkpoint.
        name: Name of the pair of layers.
        epsilon: Added by the norm to its variance.
        stride: Stride of the convolution in both directions.
        depthwise: Whether each channel has its own filter.
        activation: The activation after the norm.
    """
    deviation = (tensors[name + ".1.running_var"] + epsilon).sqrt()
    scale = tensors[name + ".1.weight"] / deviation
    pair = {
        "weight": tensors[name + ".0.weight"] * scale[:, None, None, None],
        "bias": tensors[name + ".1.bias"] - tensors[name + ".1.running_mean"] * scale,
    }
    layer = Convolution(pair["weight"].shape, stride, depthwise, activation)
    layer.load_state_dict(pair)
    return layer


def linear(tensors: Mapping[str, Tensor], name: str) -> nn.Linear:
    """Build a dense layer from a weight and bias, possibly those of a one-point convolution."""
    n_out, n_in = tensors[name + ".weight"].shape[:2]
    layer = nn.Linear(n_in, n_out)
    weight, bias = tensors[name + ".weight"].view(n_out, n_in), tensors[name + ".bias"]
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, with that removed."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
