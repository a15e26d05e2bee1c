"""Which networks may run in less than float32 on a GPU; both versions are computed on the CPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from models import folding, musicnn
from models.efficientat import EfficientAt
from models.musicnn import Musicnn
from models.precision import HalvableNetwork
from models.rhythm.network import BeatFeatures, BeatNetwork
from models.tonality.skey import SKey
from models.vibenet import Vibenet

Checkpoint = Callable[[str], dict[str, Tensor]]

LEAST_COSINE = 0.9999


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the convolution functions that a GPU uses."""
    monkeypatch.setattr(folding, "_HAS_FUSED", False)
    monkeypatch.setattr(musicnn, "_LARGE", 10_000)


class _Beats(nn.Module):
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.mel, self.network = BeatFeatures(), BeatNetwork.from_tensors(tensors)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        logits = self.network(self.mel(windows / self.mel.level(windows)[:, None]))
        return {"beats": logits.beat.sigmoid(), "tempo": logits.tempo.softmax(-1)}


class _Key(nn.Module):
    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.network = SKey.from_tensors(tensors)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        return {"keys": self.network(windows)}


NETWORKS: dict[str, tuple[Callable[[dict[str, Tensor]], nn.Module], int, int]] = {
    "musicnn-mtt": (Musicnn, 16_000, 48_128),
    "efficientat-mn04": (EfficientAt, 32_000, 64_000),
    "vibenet": (Vibenet, 16_000, 64_000),
    "afa-beats-3": (_Beats, 22_050, 110_250),
    "skey": (_Key, 22_050, 330_750),
}
"""The network that runs a checkpoint, its sample rate, and the samples in a window."""


def music(n_samples: int, sample_rate: int) -> Tensor:
    """Two windows of a chord with hits and noise, ``[2, T]``."""
    rng = np.random.default_rng(3)
    t = np.arange(n_samples) / sample_rate
    rows = []
    for pitch_hz in (110.0, 155.6):
        chord = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in (1, 1.25, 1.5, 2, 4))
        hits = rng.standard_normal(n_samples) * np.exp(-20 * (t % 0.5))
        rows.append(0.1 * chord * np.exp(-2 * (t % 0.25)) + 0.1 * hits)
    return torch.from_numpy(np.array(rows, dtype=np.float32))


CONVOLUTIONS = {torch.conv1d, torch.conv2d}
PRODUCTS = {functional.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__}


class Tf32(TorchFunctionMode):
    """Rounds the factors of some functions to ten bits of mantissa, as a GPU's tensor cores do."""

    def __init__(self, functions: set[Any]) -> None:
        super().__init__()
        self._functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._functions:
            args = (*map(ten_bits, args[:2]), *args[2:])
        return func(*args, **(kwargs or {}))


def ten_bits(values: Tensor) -> Tensor:
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


@contextmanager
def halved(network: nn.Module) -> Iterator[None]:
    """Run everything after the front-end in bfloat16."""
    front_end = network.mel
    assert isinstance(front_end, nn.Module)
    exact = front_end.forward

    def forward(windows: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            features: Tensor = exact(windows)
            return features

    vars(front_end)["forward"] = forward
    with torch.autocast("cpu", torch.bfloat16):
        yield


def lowest_cosine(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    cosines = [
        functional.cosine_similarity(rows.flatten(1).double(), other[name].flatten(1).double())
        for name, rows in one.items()
    ]
    return float(torch.cat(cosines).min())


def tf32_cosine(model_id: str, checkpoint: Checkpoint, functions: set[Any]) -> float:
    build, sample_rate, n_samples = NETWORKS[model_id]
    network, windows = build(checkpoint(model_id)).eval(), music(n_samples, sample_rate)
    with torch.inference_mode():
        exact = network(windows)
        with Tf32(functions):
            rounded = network(windows)
    assert not all(torch.equal(exact[name], rounded[name]) for name in exact)
    return lowest_cosine(exact, rounded)


@pytest.mark.parametrize("model_id", NETWORKS)
def test_convolutions_may_run_in_tf32(model_id: str, checkpoint: Checkpoint) -> None:
    assert tf32_cosine(model_id, checkpoint, CONVOLUTIONS) >= LEAST_COSINE


def test_products_of_matrices_may_not(checkpoint: Checkpoint) -> None:
    assert tf32_cosine("skey", checkpoint, PRODUCTS) < LEAST_COSINE


@pytest.mark.parametrize(
    ("model_id", "is_halvable"), [("vibenet", True), ("efficientat-mn04", False)]
)
def test_those_have_half_precision_that_it_hardly_changes(
    model_id: str, is_halvable: bool, checkpoint: Checkpoint
) -> None:
    build, sample_rate, n_samples = NETWORKS[model_id]
    network, windows = build(checkpoint(model_id)).eval(), music(n_samples, sample_rate)
    assert isinstance(network, HalvableNetwork) == is_halvable
    with torch.inference_mode():
        exact = network(windows)
        if isinstance(network, HalvableNetwork):
            network.precision = torch.bfloat16
            half = network(windows)
            assert all(rows.dtype == torch.float32 for rows in half.values())
        else:
            with halved(network):
                half = network(windows)
    assert (lowest_cosine(exact, half) >= LEAST_COSINE) == is_halvable
