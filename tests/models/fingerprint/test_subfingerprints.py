from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.fingerprint import band_changes, subfingerprints
from models.fingerprint.band_changes import LOWEST_HZ, N_FFT, BandChangeModel
from models.fingerprint.landmarks import SAMPLE_RATE
from models.fingerprint.subfingerprints import (
    HOP_LENGTH,
    N_BANDS,
    correlate,
    distances,
    distances_at,
    to_subfingerprints,
    weigh,
)

MODEL = BandChangeModel().eval()
BANDS_HZ = LOWEST_HZ * 2 ** ((band_changes.BANDS_AROUND + np.arange(N_BANDS)) / 12)


@cache
def melody() -> NDArray[np.float32]:
    """Tones that begin and end, three at a time, for 40 s."""
    rng = np.random.default_rng(0)
    t = np.arange(40 * SAMPLE_RATE) / SAMPLE_RATE
    sound = np.zeros(len(t))
    for begin in np.arange(0, 40, 0.15):
        pitch = 100 * 2 ** (rng.integers(0, 50) / 12)
        since = np.maximum(t - begin, 0)
        sound += (t >= begin) * np.exp(-3 * since) * np.sin(2 * np.pi * pitch * since)
    return (0.1 * sound).astype(np.float32)


def measure(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    changes: NDArray[np.float32] = MODEL(torch.from_numpy(samples)).numpy()
    return changes


@cache
def changes_of_melody() -> NDArray[np.float32]:
    return measure(melody())


def test_a_band_that_becomes_louder_rises_and_its_neighbours_fall() -> None:
    t = np.arange(4 * SAMPLE_RATE) / SAMPLE_RATE
    band = 30
    tone = np.sin(2 * np.pi * BANDS_HZ[band] * t)
    louder = measure((0.5 * np.exp2(t - 4) * tone).astype(np.float32))
    octaves_a_change = band_changes.LAG_FRAMES * HOP_LENGTH / SAMPLE_RATE
    expected = np.log(2) * octaves_a_change
    assert louder[8:-8, band].mean() == pytest.approx(expected, rel=0.25)
    assert np.all(louder[8:-8, band + 4] < 0)
    assert np.all(louder[8:-8, band - 4] < 0)


def test_a_clip_changes_as_the_whole_does_there() -> None:
    whole = melody()
    of_whole = changes_of_melody()
    start = 57
    clip = whole[start * HOP_LENGTH : start * HOP_LENGTH + 5 * SAMPLE_RATE]
    of_clip = measure(clip)
    np.testing.assert_allclose(of_clip, of_whole[start : start + len(of_clip)], atol=1e-3)


def test_parts_that_are_measured_one_by_one_make_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = changes_of_melody()
    monkeypatch.setattr(band_changes, "_AT_ONCE", 7)
    np.testing.assert_allclose(measure(melody()), at_once, atol=1e-4)


@pytest.mark.parametrize("n_samples", [0, 1000, N_FFT, N_FFT + 3 * HOP_LENGTH - 1])
def test_too_little_has_no_changes(n_samples: int) -> None:
    assert measure(np.ones(n_samples, np.float32)).shape == (0, N_BANDS)
    assert len(to_subfingerprints(np.zeros((0, N_BANDS), np.float32))) == 0


def test_silence_has_no_bit() -> None:
    changes = measure(np.zeros(3 * SAMPLE_RATE, np.float32))
    assert not to_subfingerprints(changes).any()
    assert not weigh(changes).any()


def test_changes_are_weighed_alike_however_large_they_are_and_none_for_too_much() -> None:
    changes = np.random.default_rng(0).standard_normal((40, N_BANDS)).astype(np.float32)
    changes[7, 7] = 1000
    weights = weigh(changes)
    assert np.abs(weights).max() == pytest.approx(1)
    np.testing.assert_array_equal(np.sign(weights), np.sign(changes))
    np.testing.assert_allclose(weigh(30 * changes), weights, atol=1e-5)


def test_a_bit_is_a_band_that_rises() -> None:
    changes = np.full((2, N_BANDS), -1, np.float32)
    changes[1, 5] = 0.1
    bits = np.unpackbits(to_subfingerprints(changes)[:, None].view(np.uint8), axis=1)
    assert np.argwhere(bits).tolist() == [[1, 5]]


@pytest.mark.parametrize("n_asked", [1, 10, 100])
def test_distances_count_the_bits_that_differ(
    n_asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subfingerprints, "_PLACES_AT_ONCE", 16)
    monkeypatch.setattr(subfingerprints, "_APART_AT_ONCE", 4)
    kept = np.random.default_rng(0).integers(0, 2**63, 100).astype(np.uint64)
    asked = np.random.default_rng(1).integers(0, 2**63, n_asked).astype(np.uint64)
    expected = [
        sum(int(kept[place + i] ^ asked[i]).bit_count() for i in range(n_asked))
        for place in range(100 - n_asked + 1)
    ]
    assert distances(kept, asked).tolist() == expected
    places = np.arange(len(expected))[::-3]
    assert distances_at(kept, asked, places).tolist() == expected[::-3]
    assert len(distances_at(kept, asked, places[:0])) == 0


def test_a_clip_correlates_with_its_place_alone() -> None:
    kept = to_subfingerprints(changes_of_melody())
    changes = changes_of_melody()[100:140]
    places = np.array([0, 50, 100, 200])
    found = correlate(kept, places, weigh(changes))
    assert found[2] == pytest.approx(1)
    assert np.all(np.abs(found[[0, 1, 3]]) < 0.3)
    np.testing.assert_allclose(correlate(kept, places, -weigh(changes)), -found, atol=1e-6)


@pytest.mark.parametrize("start", [50, 100, 150])
def test_a_clip_under_noise_is_most_like_its_place(start: int) -> None:
    whole = melody()
    clip = whole[start * HOP_LENGTH : start * HOP_LENGTH + 10 * SAMPLE_RATE]
    noise = np.random.default_rng(1).standard_normal(len(clip)).astype(np.float32)
    noisy = clip + noise * np.sqrt(np.mean(np.square(clip)))
    kept, asked = to_subfingerprints(changes_of_melody()), measure(noisy)
    nearest = int(distances(kept, to_subfingerprints(asked)).argmin())
    assert abs(nearest - start) <= 1
    correlation = correlate(kept, np.arange(len(kept) - len(asked) + 1), weigh(asked))
    assert correlation.argmax() == start
    assert correlation[start] > 5 * correlation.std()
