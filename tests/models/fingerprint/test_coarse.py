import numpy as np
import pytest
from numpy.typing import NDArray

from models.fingerprint import coarse
from models.fingerprint.coarse import Pair, choose, coarsen, count, differences, places_below
from models.fingerprint.subfingerprints import N_BANDS, to_subfingerprints


def drawn(n: int, seed: int = 0) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


def bits(rows: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(rows[:, None].view(np.uint8), axis=1)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 7, 8, 10, 11, 100])
def test_a_coarse_one_has_what_most_of_five_have(n: int) -> None:
    rows = drawn(n)
    expected = [bits(rows[i : i + 5]).sum(axis=0) >= 3 for i in range(0, n - 4, 3)]
    found = coarsen(rows)
    assert len(found) == len(expected) == count(np.array([n]))[0]
    for row, wanted in zip(bits(found), expected, strict=True):
        np.testing.assert_array_equal(row, wanted)


def changes(n: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((n, N_BANDS)).astype(np.float32)


def test_the_moments_that_change_most_are_chosen() -> None:
    clip = changes(80)
    clip[30:35] *= 6
    clip[60:65] *= 5
    (pair,) = choose(clip, 3)
    assert (pair.first, pair.second) == (10, 20)
    sums = clip[30:35].sum(axis=0), clip[60:65].sum(axis=0)
    is_first = np.abs(sums[0]) > np.abs(sums[1])
    assert 0 < is_first.sum() < N_BANDS
    wanted = np.where(is_first, *sums)
    assert pair.bits == to_subfingerprints(wanted[None])[0]
    assert pair.is_first == to_subfingerprints(is_first[None].astype(np.float32))[0]


def test_a_moment_is_paired_with_one_half_of_them_further_on() -> None:
    clip = changes(80)
    for begin in (12, 24, 36, 60):
        clip[begin : begin + 5] *= 6
    assert [(pair.first, pair.second) for pair in choose(clip, 4)] == [(4, 12), (8, 20)]


@pytest.mark.parametrize(
    ("n", "most", "n_pairs"),
    [(80, 99, 13), (80, 9, 4), (80, 1, 0), (8, 99, 1), (7, 9, 0), (0, 9, 0)],
)
def test_no_more_moments_are_chosen_than_there_are(n: int, most: int, n_pairs: int) -> None:
    pairs = choose(changes(n), most)
    assert len(pairs) == n_pairs
    moments = [moment for pair in pairs for moment in (pair.first, pair.second)]
    assert len(set(moments)) == 2 * n_pairs


@pytest.fixture
def kept() -> NDArray[np.uint64]:
    return drawn(100)


@pytest.fixture
def pairs() -> list[Pair]:
    masks, wanted = drawn(3, 2), drawn(3, 3)
    places = [(4, 0), (7, 1), (2, 9)]
    return [Pair(*place, *pair) for place, *pair in zip(places, masks, wanted, strict=True)]


def test_each_band_is_compared_at_one_of_two_moments(
    kept: NDArray[np.uint64], pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coarse, "_PLACES_AT_ONCE", 16)
    expected = [
        sum(
            int((kept[place + pair.first] ^ pair.bits) & pair.is_first).bit_count()
            + int((kept[place + pair.second] ^ pair.bits) & ~pair.is_first).bit_count()
            for pair in pairs
        )
        for place in range(91)
    ]
    found = differences(kept, pairs, np.arange(91)[::-2])
    assert found.tolist() == expected[::-2]
    below = int(np.median(expected))
    within = np.concatenate(list(places_below(kept, pairs, 91, below)))
    assert within.tolist() == [i for i, one in enumerate(expected) if one < below]
    assert list(places_below(kept, pairs, 0, below)) == []
