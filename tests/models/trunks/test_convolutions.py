"""Rewritten convolutions give the same results as the plain ones."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import HubertConfig, HubertModel

from models.trunks.convolutions import FeatureEncoder, FourierConvolution

SMALL = {"conv_dim": [16] * 7, "hidden_size": 16, "num_attention_heads": 2}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("norm", ["group", "layer"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_samples", [400, 2403])
def test_a_feature_encoder_is_huberts(norm: str, bias: bool, n_samples: int) -> None:
    config = HubertConfig(**SMALL, feat_extract_norm=norm, conv_bias=bias)
    plain = HubertModel(config).feature_extractor
    for name, tensor in plain.named_parameters():
        if name.endswith("bias") or "layer_norm" in name:
            nn.init.uniform_(tensor)
    samples = torch.randn(3, n_samples)
    with torch.inference_mode():
        want, got = plain(samples).transpose(1, 2), FeatureEncoder(plain)(samples)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_a_feature_encoder_keeps_channels_innermost_and_aligned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Tensor] = []
    linear, conv2d = nn.functional.linear, nn.functional.conv2d

    def look(real: Callable[..., Tensor], *tensors: Any) -> Tensor:
        seen.append(tensors[0])
        return real(*tensors)

    monkeypatch.setattr(nn.functional, "linear", partial(look, linear))
    monkeypatch.setattr(nn.functional, "conv2d", partial(look, conv2d))
    with torch.inference_mode():
        plain = HubertModel(HubertConfig(**SMALL)).feature_extractor
        FeatureEncoder(plain)(torch.randn(2, 1200))
    first, *others = seen
    assert first.shape == (2, 239, 16)  # ten taps, padded to a multiple of eight numbers
    assert len(others) == 6
    assert all(one.is_contiguous(memory_format=torch.channels_last) for one in others)


@pytest.mark.parametrize("n_inputs", [1, 50, 51, 52, 400])
@pytest.mark.parametrize("bias", [False, True])
def test_a_fourier_convolution_is_the_plain_one(n_inputs: int, bias: bool) -> None:
    plain = nn.Conv1d(12, 8, 16, padding=8, groups=4, bias=bias)  # 49 sums per block
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
