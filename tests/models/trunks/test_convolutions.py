"""Convolutions in other forms give what the plain ones give."""

import pytest
import torch
from torch import nn

from models.trunks.convolutions import FourierConvolution, FramedConvolution


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("n_taps", "stride"), [(10, 5), (10, 4), (3, 5), (16, 8), (1, 1)])
@pytest.mark.parametrize("n_samples", [16, 97, 400])
def test_a_framed_convolution_is_the_plain_one(n_taps: int, stride: int, n_samples: int) -> None:
    plain = nn.Conv1d(1, 6, n_taps, stride)
    samples = torch.randn(3, 1, n_samples)
    with torch.inference_mode():
        want, got = plain(samples), FramedConvolution(plain)(samples)
    torch.testing.assert_close(got, want)


def test_a_framed_convolution_gives_tensor_cores_eight_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes: list[tuple[torch.Size, torch.Size]] = []
    real = nn.functional.conv1d

    def look(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        shapes.append((inputs.shape, weight.shape))
        return real(inputs, weight, bias)

    framed = FramedConvolution(nn.Conv1d(1, 512, 10, 5, bias=False))
    monkeypatch.setattr(nn.functional, "conv1d", look)
    framed(torch.randn(2, 1, 1200))
    assert shapes == [((2, 8, 240), (512, 8, 2))]


@pytest.mark.parametrize("n_inputs", [1, 50, 51, 52, 400])
@pytest.mark.parametrize("bias", [False, True])
def test_a_fourier_convolution_is_the_plain_one(n_inputs: int, bias: bool) -> None:
    plain = nn.Conv1d(12, 8, 16, padding=8, groups=4, bias=bias)  # 49 sums to a block
    inputs = torch.randn(3, 12, n_inputs)
    with torch.inference_mode():
        want, got = plain(inputs), FourierConvolution(plain)(inputs)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_a_fourier_convolution_follows_weights_that_are_loaded() -> None:
    plain, fourier = (nn.Conv1d(4, 4, 8, padding=4, groups=2) for _ in range(2))
    network = nn.Sequential(FourierConvolution(fourier))
    network.load_state_dict({f"0.{name}": tensor for name, tensor in plain.state_dict().items()})
    inputs = torch.randn(1, 4, 40)
    with torch.inference_mode():
        torch.testing.assert_close(network(inputs), plain(inputs), atol=1e-5, rtol=1e-5)
