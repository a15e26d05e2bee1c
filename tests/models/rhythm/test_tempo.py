"""Tempo from beats and from the activation's periodicity."""

import numpy as np
import pytest

from models.rhythm.tempo import (
    are_related,
    dominant_tempo,
    harmonic_prior,
    level_prior,
    local_tempi,
    log_belief,
    periodicity_tempo,
)


@pytest.mark.parametrize("tempo", [57.3, 93.7, 128.02, 211.0])
def test_regression_is_finer_than_the_grid(tempo: float) -> None:
    exact = np.arange(0.2, 60, 60 / tempo)
    beats = np.round(exact * 100) / 100
    assert dominant_tempo(beats) == pytest.approx(tempo, rel=2e-4)


def test_the_longest_tempo_is_dominant() -> None:
    beats = np.concatenate([np.arange(0, 20, 0.6), np.arange(20, 60, 0.45)])
    assert dominant_tempo(beats) == pytest.approx(60 / 0.45, rel=1e-3)
    tempi = local_tempi(beats)
    assert tempi[3] == pytest.approx(100, rel=1e-3)
    assert tempi[-3] == pytest.approx(60 / 0.45, rel=1e-3)


def test_a_phase_slip_does_not_move_the_tempo() -> None:
    beats = np.concatenate([np.arange(0, 25, 0.5), np.arange(25.15, 50, 0.5)])
    assert dominant_tempo(beats) == pytest.approx(120, rel=2e-4)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_beats(n: int) -> None:
    assert dominant_tempo(np.arange(n) * 0.5) == 0.0
    assert dominant_tempo(np.arange(3) * 0.5) == pytest.approx(120)


@pytest.mark.parametrize("tempo", [80, 120, 150])
def test_periodicity(tempo: float) -> None:
    activation = np.zeros(3000, dtype=np.float32)
    activation[np.round(np.arange(0.1, 29.9, 60 / tempo) * 100).astype(int)] = 1
    activation = np.convolve(activation, [0.5, 1, 0.5], "same").astype(np.float32)
    assert periodicity_tempo(activation, 100) == pytest.approx(tempo, rel=0.01)


def test_periodicity_of_nothing() -> None:
    assert periodicity_tempo(np.zeros(3000, dtype=np.float32), 100) == 0.0
    assert periodicity_tempo(np.ones(100, dtype=np.float32), 100) == 0.0


def test_related_tempi() -> None:
    assert are_related(120, 60)
    assert are_related(120, 121)
    assert are_related(180, 60)
    assert not are_related(120, 90)
    assert not are_related(120, 130)


def test_the_usual_level_is_preferred() -> None:
    assert level_prior(120) == 0.0
    assert level_prior(128) > level_prior(64)
    assert level_prior(90) > level_prior(180)
    assert level_prior(60) == pytest.approx(level_prior(240))


def test_a_level_with_a_chord_a_bar_is_preferred() -> None:
    slow, right, fast = harmonic_prior(np.array([60.0, 120.0, 240.0]), 0.5)
    assert slow == fast < right == 0
    # When a chord lasts for many bars, it says nothing about the level.
    static = harmonic_prior(np.array([60.0, 120.0]), 0.01)
    assert static[0] == static[1]


def test_belief_lies_between_classes() -> None:
    classes = 40.0 * 2.0 ** (np.arange(64) / 20)
    logits = np.full((5, 64), -8.0, dtype=np.float32)
    logits[:, [31, 32]] = 4.0
    between = float(np.sqrt(classes[31] * classes[32]))
    belief = log_belief(logits, classes, np.array([between, between / 2, between * 2]))
    assert belief[0] > -0.2
    assert belief[1:] == pytest.approx([np.log(1e-4)] * 2, abs=0.1)


def test_belief_is_that_of_the_whole_track() -> None:
    classes = 40.0 * 2.0 ** (np.arange(64) / 20)
    logits = np.zeros((30, 64), dtype=np.float32)
    logits[:10, 20] = 9.0
    logits[10:, 40] = 9.0
    belief = log_belief(logits, classes, classes[[20, 40]])
    assert belief[1] > belief[0] + 2
