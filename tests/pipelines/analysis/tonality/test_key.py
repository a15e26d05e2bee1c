"""Key of chord progressions in every key, tuned and mistuned."""

import numpy as np
import pytest
import torch

from models.tonality.key import SAMPLE_RATE, UNKNOWN
from models.tonality.skey import CROP_LENGTH
from models.tonality.tuning import estimate_tuning
from pipelines.analysis.tonality.key import ChromaModel, KeyNetworkModel, estimate_key, tuned
from pipelines.audio.gain import peak_of
from tests.data.synthetic_music import steady

MODEL = ChromaModel("hpcp", torch.device("cpu"))


def chroma(samples: np.ndarray) -> np.ndarray:
    mono = samples.mean(axis=0).reshape(-1, 2).mean(axis=1).astype(np.float32)  # 22.05 kHz
    with torch.inference_mode():
        rows = MODEL.forward(MODEL.grid.windows(torch.from_numpy(mono)))
    return MODEL.chroma(rows, len(mono), estimate_tuning(torch.from_numpy(mono)))


@pytest.mark.parametrize("key", range(12))
@pytest.mark.parametrize("mode", ["major", "minor"])
def test_every_key(key: int, mode: str) -> None:
    found = estimate_key(chroma(steady(120, 10, key=key, mode=mode).samples))
    assert (found.key, found.mode) == (key, int(mode == "major"))
    assert found.confidence > 0.3


@pytest.mark.parametrize("cents", [-45, -40, -20, 15, 30, 40, 45])
def test_mistuned_music(cents: float) -> None:
    found = estimate_key(chroma(steady(120, 10, key=7, mode="minor", cents=cents).samples))
    assert (found.key, found.mode) == (7, 0)


@pytest.mark.parametrize("seconds", [1.0, 5.0, 30.0])
def test_noise_has_no_key(seconds: float) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (1, int(seconds * 2 * SAMPLE_RATE)))
    assert estimate_key(chroma(noise)) == UNKNOWN


def test_silence_has_no_key() -> None:
    assert estimate_key(np.zeros((10, 12), dtype=np.float32)) == UNKNOWN


def test_dither_is_silence_and_music_behind_it_keeps_its_key() -> None:
    rng = np.random.default_rng(0)
    dither = (rng.random((1, 120 * SAMPLE_RATE)) - rng.random((1, 120 * SAMPLE_RATE))) / 32_768
    music = 1e-3 * steady(120, 10, key=7, mode="minor").samples.mean(axis=0, keepdims=True)
    assert not chroma(dither).any()
    assert estimate_key(chroma(np.concatenate([dither, music], axis=1))).key == 7


def test_networks_decide_where_the_profile_is_torn() -> None:
    torn = np.zeros((1, 12), dtype=np.float32)
    torn[0, [0, 2, 4, 7, 9]] = [1.0, 0.4, 0.8, 0.8, 0.95]
    crops = np.full((2, 1, 1, 24), 0.4 / 23, dtype=np.float32)
    crops[0, ..., 0] = crops[1, ..., 12 + 9] = 0.6
    keys = [estimate_key(torn, networks) for networks in crops]
    assert [(key.key, key.mode) for key in keys] == [(0, 1), (9, 0)]


def test_confidence_falls_with_ambiguity() -> None:
    clear = np.zeros((1, 12), dtype=np.float32)
    clear[0, [0, 2, 4, 5, 7, 9, 11]] = [1, 0.4, 0.6, 0.4, 0.9, 0.3, 0.3]
    vague = clear + np.roll(clear, 7, axis=1)
    assert estimate_key(clear).confidence > 1.3 * estimate_key(vague).confidence


@pytest.mark.parametrize("cents", [-40.0, -7.0, 25.0, 50.0])
def test_crops_are_brought_into_tune(cents: float) -> None:
    t = torch.arange(2 * SAMPLE_RATE, dtype=torch.float64) / SAMPLE_RATE
    sharp = torch.sin(2 * torch.pi * 440.0 * 2 ** (cents / 1200) * t).float()[None]
    played = tuned(sharp, cents)
    assert played.shape == sharp.shape
    assert estimate_tuning(played[0]) == pytest.approx(0.0, abs=0.3)


def test_crops_in_tune_are_left_alone() -> None:
    crops = torch.zeros(2, 100)
    assert tuned(crops, 0.01).data_ptr() == crops.data_ptr()


@pytest.mark.parametrize(("cents", "is_left"), [(0.0, True), (-4.0, True), (6.0, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_track_in_tune_is_heard_as_it_is(cents: float, is_left: bool, dtype: torch.dtype) -> None:
    samples = torch.linspace(-0.5, 0.5, 20 * SAMPLE_RATE).sin().to(dtype)
    windows = KeyNetworkModel("none", [], torch.device("cpu")).windows(samples, cents)
    assert windows.shape == (2, CROP_LENGTH)
    assert windows.dtype == torch.float32
    heard = samples[:CROP_LENGTH].float() / peak_of(samples)
    assert torch.equal(windows[0], heard) == is_left


@pytest.mark.parametrize(("seconds", "starts"), [(60, [0, 45]), (61, [0, 23, 46])])
def test_crops_lie_evenly(seconds: int, starts: list[int]) -> None:
    second = torch.arange(seconds * SAMPLE_RATE) // SAMPLE_RATE + 1.0
    crops = KeyNetworkModel("none", [], torch.device("cpu")).windows(second, 0.0)
    assert (crops[:, 0] * seconds).round().int().tolist() == [start + 1 for start in starts]


def test_the_networks_do_not_hear_silence() -> None:
    t = torch.arange(20 * SAMPLE_RATE) / SAMPLE_RATE
    music, silence = (220 * 2 * torch.pi * t).sin(), torch.zeros(600 * SAMPLE_RATE)
    model = KeyNetworkModel("none", [], torch.device("cpu"))
    for track in (torch.cat([silence, music]), torch.cat([music, silence])):
        assert torch.equal(model.windows(track, 0.0), model.windows(music, 0.0))
    assert len(model.windows(silence, 0.0)) > 0
