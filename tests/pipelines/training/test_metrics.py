"""Scores of the accuracy benchmark on predictions whose quality is known."""

import numpy as np
import pytest

from pipelines.training.metrics import (
    beat_f,
    beat_f_any_level,
    bootstrap,
    key_name,
    key_weighted,
    reliability,
    score_all,
    tempo_accuracy,
)

BEATS = np.arange(0.5, 30, 0.5).tolist()


@pytest.mark.parametrize(
    ("found", "expected"),
    [(120, (1, 1)), (124.7, (1, 1)), (126, (0, 0)), (60, (0, 1)), (361, (0, 1)), (None, (0, 0))],
)
def test_tempo_accuracy(found: float | None, expected: tuple[int, int]) -> None:
    assert tempo_accuracy(120, found) == expected


def test_beats_and_levels() -> None:
    assert beat_f(BEATS, [b + 0.05 for b in BEATS]) == 1.0
    assert beat_f(BEATS, [b + 0.1 for b in BEATS]) == 0.0
    assert beat_f(BEATS, []) == 0.0
    off = [b + 0.25 for b in BEATS]
    assert beat_f(BEATS, off) == 0.0
    assert beat_f_any_level(BEATS, off) > 0.98
    assert beat_f_any_level(BEATS, BEATS[::2]) == 1.0


@pytest.mark.parametrize(
    ("key", "mode", "expected"),
    [
        ("D", "major", 1.0),
        ("A", "major", 0.5),
        ("B", "minor", 0.3),
        ("D", "minor", 0.2),
        ("E", "minor", 0.0),
        (None, None, 0.0),
    ],
)
def test_key(key: str | None, mode: str | None, expected: float) -> None:
    assert key_weighted({"key": "D", "mode": "major"}, {"key": key, "mode": mode}) == expected


def test_key_names() -> None:
    assert key_name("A#", "Minor") == key_name("B♭", "minor") == "Bb minor"


def test_only_what_a_library_predicts_is_scored() -> None:
    truth = {
        "a": {"tempo": 120, "tempo_level": "sure", "key": "C", "mode": "major", "beats": BEATS},
        "b": {"tempo": 100, "tempo_level": "octave"},
    }
    scores = score_all(truth, {"a": {"tempo": 60.0}})
    assert scores == {
        "a": {"tempo accuracy 1": 0.0, "tempo accuracy 2": 1.0},
        "b": {"tempo accuracy 2": 0.0},
    }


def test_bootstrap() -> None:
    score = bootstrap([0.0, 1.0] * 50)
    assert score.mean == 0.5
    assert score.n == 100
    assert score.low == pytest.approx(0.4, abs=0.03)
    assert score.high == pytest.approx(0.6, abs=0.03)


def test_reliability_groups() -> None:
    assert reliability([0.1, 0.95, 0.9, 1.0], [0, 1, 0, 1]) == [
        (pytest.approx(0.1), 0.0, 1),
        (pytest.approx(0.95), pytest.approx(2 / 3), 3),
    ]
