"""Downbeats and metre from synthetic probabilities."""

import numpy as np
import pytest

from models.rhythm.bars import downbeat_odds, find_bars


def odds(metre: int, n: int, high: float = 0.85, low: float = 0.1, phase: int = 0) -> np.ndarray:
    values = np.full(n, low)
    values[phase::metre] = high
    return values + np.random.default_rng(0).normal(0, 0.05, n)


@pytest.mark.parametrize(
    ("metre", "phase"), [(4, 0), (4, 3), (3, 1), (2, 1), (6, 2), (5, 3), (7, 4)]
)
def test_metre_and_phase(metre: int, phase: int) -> None:
    bars = find_bars(odds(metre, 96, phase=phase))
    assert bars.metre == metre
    np.testing.assert_array_equal(bars.downbeats, np.arange(phase, 96, metre))
    assert bars.confidence > 0.5


@pytest.mark.parametrize("metre", [5, 7])
def test_faint_odd_metres_are_no_fours(metre: int) -> None:
    assert find_bars(odds(metre, 70, high=0.55, low=0.25, phase=2)).metre == metre
    assert find_bars(odds(4, 70, high=0.55, low=0.25, phase=2)).metre == 4


def test_a_lost_beat_shifts_the_bars_once() -> None:
    values = np.concatenate([odds(4, 42), odds(4, 40)])
    bars = find_bars(values)
    np.testing.assert_array_equal(
        bars.downbeats, np.concatenate([np.arange(0, 42, 4), np.arange(42, 82, 4)])
    )


@pytest.mark.parametrize(("n_halves", "n_bars"), [(48, 48), (96, 24)])
def test_bars_of_two_beside_bars_of_four_are_halves(n_halves: int, n_bars: int) -> None:
    halves, bars = odds(2, n_halves, phase=1), odds(4, n_bars, phase=1)
    for values in (np.concatenate([halves, bars]), np.concatenate([bars, halves])):
        found = find_bars(values)
        assert found.metre == 4
        np.testing.assert_array_equal(found.downbeats, np.arange(1, n_halves + n_bars, 4))


def test_a_single_bar_of_two_among_fours_is_told() -> None:
    values = np.concatenate([odds(4, 40), odds(2, 2), odds(4, 40)])
    found = find_bars(values)
    np.testing.assert_array_equal(found.downbeats, [*range(0, 44, 4), *range(42, 82, 4)])


def test_equal_beats_give_little_confidence() -> None:
    assert find_bars(np.full(60, 0.4)).confidence < 0.1


@pytest.mark.parametrize("none", [0.03, 0.4, 0.97])
def test_where_no_beat_stands_out_there_are_four_in_a_bar(none: float) -> None:
    noise = np.random.default_rng(0).normal(0, 0.005, 60)
    bars = find_bars(none + noise)
    assert bars.metre == 4
    assert bars.confidence < 0.2


def test_chord_changes_decide_where_accents_do_not() -> None:
    change = np.zeros(64)
    change[2::4] = 0.4
    vague = np.full(64, 0.3) + np.random.default_rng(1).normal(0, 0.02, 64)
    np.testing.assert_array_equal(find_bars(vague, [(1.0, change)]).downbeats, np.arange(2, 64, 4))
    elsewhere = np.roll(change, 1)
    for weights, first in (((0.5, 2.0), 2), ((2.0, 0.5), 3)):
        told = list(zip(weights, (elsewhere, change), strict=True))
        np.testing.assert_array_equal(find_bars(vague, told).downbeats, np.arange(first, 64, 4))


@pytest.mark.parametrize("metre", [3, 5, 7])
def test_loudness_decides_where_all_beats_are_alike(metre: int) -> None:
    levels = np.full(70, -20.0)
    levels[2::metre] += 4.0
    alike = np.full(70, 0.75) + np.random.default_rng(1).normal(0, 0.03, 70)
    bars = find_bars(alike, levels_db=levels)
    assert bars.metre == metre
    np.testing.assert_array_equal(bars.downbeats, np.arange(2, 70, metre))


def test_loudness_without_bars_decides_little() -> None:
    alike = np.full(70, 0.75) + np.random.default_rng(1).normal(0, 0.03, 70)
    by_hand = [np.random.default_rng(seed).normal(-20.0, 1.5, 70) for seed in range(20)]
    told = [find_bars(alike, levels_db=levels).metre for levels in by_hand]
    assert told.count(4) >= 18


def test_loudness_decides_nothing_else() -> None:
    heard, levels = odds(4, 70), np.full(70, -20.0)
    levels[2::3] += 12.0
    np.testing.assert_array_equal(
        find_bars(heard, levels_db=levels).downbeats, find_bars(heard).downbeats
    )
    alike, hardly = np.full(70, 0.75), np.where(levels > -20.0, -19.2, -20.0)
    np.testing.assert_array_equal(
        find_bars(alike, levels_db=hardly).downbeats, find_bars(alike).downbeats
    )


@pytest.mark.parametrize("phase", [0, 1])
def test_drums_that_begin_each_half_of_a_bar_alike_are_counted_in_four(phase: int) -> None:
    halves = odds(2, 64, phase=phase)
    assert find_bars(halves).metre == 2
    bars = find_bars(halves, is_drums=True)
    assert bars.metre == 4
    np.testing.assert_array_equal(bars.downbeats, np.arange(phase, 64, 4))


def test_drums_whose_halves_differ_a_little_are_counted_from_their_first_beat() -> None:
    nearly = np.tile([0.60, 0.05, 0.62, 0.05], 16)
    assert find_bars(nearly).downbeats[0] == 2
    bars = find_bars(nearly, is_drums=True)
    np.testing.assert_array_equal(bars.downbeats, np.arange(0, 64, 4))


@pytest.mark.parametrize("metre", [3, 4, 5, 6, 7])
def test_drums_keep_bars_that_are_told(metre: int) -> None:
    accents = odds(metre, 84, phase=2)
    told, alone = find_bars(accents), find_bars(accents, is_drums=True)
    assert (alone.metre, told.metre) == (metre, metre)
    np.testing.assert_array_equal(alone.downbeats, told.downbeats)


def test_a_metronome_keeps_its_accents_in_two() -> None:
    levels = np.full(64, -20.0)
    levels[::2] += 6.0
    alike = np.full(64, 0.75) + np.random.default_rng(1).normal(0, 0.03, 64)
    assert find_bars(alike, levels_db=levels, is_drums=True).metre == 2


def test_no_beats() -> None:
    bars = find_bars(np.zeros(0))
    assert (len(bars.downbeats), bars.metre, bars.confidence) == (0, 4, 0.0)


def test_odds_look_30_ms_around() -> None:
    activation = np.zeros((100, 2), dtype=np.float32)
    activation[20, 0], activation[52, 1], activation[84, 1] = 0.8, 0.6, 0.9
    found = downbeat_odds(activation, np.array([20, 50, 80]))
    np.testing.assert_allclose(found, [0.0, 1.0, 0.0], atol=1e-6)
