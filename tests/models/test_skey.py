"""S-KEY: the fast transform compared with plain convolutions, and keys of rendered music."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from models.checkpoints.cache import load_tensors
from models.checkpoints.cards import ModelCard
from models.tonality import skey
from models.tonality.skey import CROP_LENGTH, SAMPLE_RATE, SKey
from tests.data.synthetic_music import steady


@pytest.fixture(scope="module")
def tensors(cards: dict[str, ModelCard], model_dir: Path) -> dict[str, Tensor]:
    return load_tensors(cards["skey"], model_dir)


@pytest.fixture(scope="module")
def network(tensors: dict[str, Tensor]) -> SKey:
    return SKey.from_tensors(tensors)


def crop(key: int, mode: str) -> Tensor:
    samples = steady(120, 16, key=key, mode=mode).samples.mean(axis=0)
    halved = samples[: 2 * CROP_LENGTH].reshape(-1, 2).mean(axis=1)
    return torch.from_numpy(halved / np.abs(halved).max())[None].float()


def plain_transform(tensors: Mapping[str, Tensor], waveform: Tensor) -> Tensor:
    """The published recursion: convolve, halve, convolve."""
    signal, hop, octaves = waveform[:, None], 512, []
    for i in range(9):
        if i:
            signal = functional.conv1d(
                signal, tensors["hcqt.lowpass_filter"].reshape(1, 1, -1), stride=2, padding=127
            )
            hop //= 2
        padded = functional.pad(signal, (64, 64), mode="reflect")
        real, imaginary = (
            functional.conv1d(padded, tensors[f"hcqt.cqt_kernels_{part}_{i}"], stride=hop)
            for part in ("real", "imag")
        )
        octaves.insert(0, (real.square() + imaginary.square()).sqrt())
    n = min(octave.shape[-1] for octave in octaves)
    bins = torch.cat([octave[..., :n] for octave in octaves], dim=1)[:, -99:]
    return bins * tensors["hcqt.lenghts"].sqrt()[:, None]


def test_the_transform_equals_plain_convolutions(tensors: dict[str, Tensor], network: SKey) -> None:
    waveform = torch.randn(2, 100_000, generator=torch.Generator().manual_seed(0)) * 0.1
    with torch.inference_mode():
        found = network.vqt(waveform)
    expected = plain_transform(tensors, waveform)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("key", "mode"), [(0, "major"), (9, "minor"), (6, "major"), (2, "minor")])
def test_key_of_a_cadence(network: SKey, key: int, mode: str) -> None:
    with torch.inference_mode():
        probabilities = network(crop(key, mode))[0]
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-5)
    assert int(probabilities.argmax()) == key + (0 if mode == "major" else 12)


def test_shifted_crops_agree(network: SKey) -> None:
    with torch.inference_mode():
        probabilities = network(crop(4, "minor"), shifts=3)[0]
    assert int(probabilities.argmax()) == 16


def test_a_row_equals_itself_alone(network: SKey) -> None:
    batch = torch.cat([crop(3, "major"), crop(8, "minor"), torch.zeros(1, CROP_LENGTH)])
    with torch.inference_mode():
        for row, waveform in zip(network(batch), batch, strict=True):
            torch.testing.assert_close(network(waveform[None])[0], row, atol=1e-5, rtol=1e-4)


def test_channels_that_lie_innermost_change_nothing(network: SKey) -> None:
    image = torch.rand(2, 1, 84, 640, generator=torch.Generator().manual_seed(2))
    expected = image
    with torch.inference_mode():
        found = network.stages(image)
        for stage in network.stages:
            assert isinstance(stage, skey.Stage)
            normal = functional.layer_norm(expected, expected.shape[1:])
            halved = functional.gelu(stage.halve(normal)).contiguous()
            heard = stage.dwconv(halved)
            normal = functional.layer_norm(heard, heard.shape[1:]).permute(0, 2, 3, 1)
            mapped = stage.gamma * stage.pwconv2(functional.gelu(stage.pwconv1(normal)))
            expected = halved + mapped.permute(0, 3, 1, 2)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_points_in_pieces_are_points_at_once(
    network: SKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = 0.1 * torch.randn(2, 5 * SAMPLE_RATE, generator=torch.Generator().manual_seed(1))
    pieces = network(sound)
    monkeypatch.setattr(skey, "_VALUES", 1 << 30)
    torch.testing.assert_close(network(sound), pieces, atol=1e-6, rtol=0)
