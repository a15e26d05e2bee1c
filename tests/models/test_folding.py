"""A convolution and its activation in one pass, compared with the two functions one by one."""

from typing import get_args

import pytest
import torch
from torch.nn import functional

from models import folding
from models.folding import Activation, Convolution

SHAPES = [((24, 8, 1, 1), 1, False), ((24, 1, 5, 5), 2, True), ((16, 1, 3, 3), 2, False)]
"""Shape of the weight, stride, and whether each channel has its own filter."""

ALONE = {
    "none": lambda x: x,
    "relu": functional.relu,
    "swish": functional.silu,
    "hardswish": functional.hardswish,
}


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize(("shape", "stride", "depthwise"), SHAPES)
def test_one_pass_gives_what_two_give(
    shape: tuple[int, ...], stride: int, depthwise: bool, activation: Activation
) -> None:
    torch.manual_seed(0)
    layer = Convolution(torch.Size(shape), stride, depthwise, activation)
    for width in (33, 64):  # the weights are packed for the first width
        image = torch.randn(2, layer.in_channels, 20, width)
        with torch.inference_mode():
            both = layer(image)
        apart = functional.conv2d(
            image, layer.weight, layer.bias, stride, layer.padding, groups=layer.groups
        )
        torch.testing.assert_close(both, ALONE[activation](apart), atol=1e-5, rtol=0)
    assert (layer._packed is not None) == folding._HAS_FUSED


def test_gradients_flow() -> None:
    layer = Convolution(torch.Size((4, 3, 3, 3)), 1, False, "swish")
    layer(torch.randn(1, 3, 8, 8)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.any()


def test_half_precision_is_torchs_own() -> None:
    layer = Convolution(torch.Size((4, 3, 3, 3)), 1, False, "relu")
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(1, 3, 8, 8)).dtype == torch.bfloat16
