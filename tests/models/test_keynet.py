"""The key network: keys of rendered music, rows alone, silence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.checkpoints.cache import load_tensors
from models.checkpoints.cards import ModelCard
from models.tonality.chordnet import ChordNetwork
from models.tonality.keynet import KeyBands, KeyNetwork
from tests.data.synthetic_music import steady

_LENGTH = 15 * 22_050


@pytest.fixture(scope="module")
def network(cards: dict[str, ModelCard], model_dir: Path) -> KeyNetwork:
    return KeyNetwork.from_tensors(load_tensors(cards["afa-key-2"], model_dir))


def crop(key: int, mode: str) -> Tensor:
    samples = steady(120, 16, key=key, mode=mode).samples.mean(axis=0)
    halved = samples[: 2 * _LENGTH].reshape(-1, 2).mean(axis=1)
    return torch.from_numpy(halved / np.abs(halved).max())[None].float()


@pytest.mark.parametrize(("key", "mode"), [(0, "major"), (9, "minor"), (6, "major"), (2, "minor")])
def test_key_of_a_cadence(network: KeyNetwork, key: int, mode: str) -> None:
    with torch.inference_mode():
        probabilities = network(crop(key, mode))[0]
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-5)
    assert int(probabilities.argmax()) == key + (0 if mode == "major" else 12)


def test_a_row_equals_itself_alone_at_any_level(network: KeyNetwork) -> None:
    batch = torch.cat([crop(3, "major"), 0.1 * crop(8, "minor"), torch.zeros(1, _LENGTH)])[
        :, : 5 * 22_050
    ]
    with torch.inference_mode():
        rows = network(batch)
        for row, waveform in zip(rows, batch, strict=True):
            torch.testing.assert_close(network(waveform[None])[0], row, atol=1e-5, rtol=1e-4)
        louder = network(10 * batch[1:2])[0]
    assert rows.isfinite().all()
    torch.testing.assert_close(louder, rows[1], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("hz", "band"), [(65.41, 1), (440.0, 100), (1975.53, 178)])
def test_a_tone_lies_in_its_band(hz: float, band: int) -> None:
    tone = torch.sin(2 * torch.pi * hz * torch.arange(30_000) / 22_050)[None]
    bands = KeyBands()(tone)
    assert bands.shape == (1, 3, 180)
    assert float(bands.mean()) == pytest.approx(1, abs=1e-3)
    assert abs(int(bands[0].mean(0).argmax()) - band) <= (1 if hz > 200 else 3)


def test_norms_folded_in_change_nothing(cards: dict[str, ModelCard], model_dir: Path) -> None:
    tensors = load_tensors(cards["afa-chords-2"], model_dir)
    settled, trained = ChordNetwork.from_tensors(tensors), ChordNetwork()
    trained.load_state_dict(tensors)
    trained.eval()
    assert not any(isinstance(part, nn.BatchNorm2d) for part in settled.modules())
    with torch.inference_mode():
        waveform = crop(3, "minor")
        wanted, got = (
            network.logits(network.bands.magnitudes(waveform)) for network in (trained, settled)
        )
    for one, other in zip(wanted, got, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
