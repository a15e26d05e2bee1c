"""The clips of single metres: how they are made, and that edits move their truth along."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from benchmarks.accuracy.metres import RECIPES, beats_in_bar, cut, is_fit
from models.rhythm.network import SAMPLE_RATE
from pipelines.training.music.performance import Performance, perform
from pipelines.training.music.score import CLOSED_HAT, DRUMS, SNARE, Note


@pytest.mark.parametrize(
    ("kind", "beats"),
    [
        ("two", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("six-eight", 2),
        ("seven", 7),
    ],
)
def test_a_metre_has_its_beats(kind: str, beats: int) -> None:
    assert beats_in_bar(RECIPES[kind].draw(Random(1))) == beats


@pytest.mark.parametrize("seed", range(4))
def test_an_anacrusis_sounds_before_the_first_bar(seed: int) -> None:
    piece = RECIPES["anacrusis"].draw(Random(seed))
    begin = min(note.start for note in piece.notes)
    assert 1.0 <= piece.downbeats[0] - begin <= 2.0
    assert piece.beats[0] < piece.downbeats[0]


def test_an_introduction_is_quiet_and_without_drums() -> None:
    piece = RECIPES["quiet-intro"].draw(Random(0))
    entry = min(note.start for note in piece.notes if note.channel == DRUMS)
    assert 10.0 <= entry * 60 / piece.tempo < 20.0
    before, after = (
        np.mean([note.velocity for note in piece.notes if (note.start < entry) == is_before])
        for is_before in (True, False)
    )
    assert before < after / 2


@pytest.mark.parametrize(("kind", "per_bar"), [("half-time", 1), ("double-time", 4)])
def test_only_the_drums_change_their_feel(kind: str, per_bar: int) -> None:
    piece = RECIPES[kind].draw(Random(0))
    last = piece.downbeats[-2]
    struck = [
        note.pitch
        for note in piece.notes
        if note.channel == DRUMS and last <= note.start < last + 4
    ]
    assert struck.count(SNARE) == per_bar
    assert struck.count(CLOSED_HAT) == 4 * max(1, per_bar // 2)
    assert np.diff(piece.downbeats) == pytest.approx(4.0)


def test_a_cut_moves_what_comes_behind_it() -> None:
    at = np.arange(0, 40, 0.5)
    samples = np.zeros(40 * SAMPLE_RATE, dtype=np.float32)
    samples[(at * SAMPLE_RATE).astype(int)] = 1.0
    joined, (beats,) = cut(samples, (at,), (18.2, 19.3))
    assert len(joined) == pytest.approx(38.9 * SAMPLE_RATE, abs=1)
    assert 18.0 in beats
    assert np.diff(beats).max() == pytest.approx(0.5)
    assert np.diff(beats).min() == pytest.approx(0.4)
    np.testing.assert_allclose(joined[np.round(beats * SAMPLE_RATE).astype(int)], 1.0)


def test_rubato_and_drums_are_asked_for() -> None:
    steady = Performance([], np.arange(20.0), np.arange(0, 20.0, 4))
    free = replace(steady, beats=np.cumsum(1 + 0.1 * np.sin(np.arange(20.0))))
    assert not is_fit("rubato", RECIPES["rubato"], steady)
    assert is_fit("rubato", RECIPES["rubato"], free)
    drums = replace(steady, notes=[Note(0, 1, DRUMS, SNARE, 90)])
    assert not is_fit("half-time", RECIPES["half-time"], steady)
    assert is_fit("half-time", RECIPES["half-time"], drums)


def test_a_performance_begins_where_it_is_told_to() -> None:
    piece = RECIPES["anacrusis"].draw(Random(3))
    begin = min(note.start for note in piece.notes)
    performances = [perform(piece, Random(seed), 40.0, begin) for seed in range(6)]
    assert {round(p.beats[1] - p.beats[0] - 60 / piece.tempo, 1) for p in performances} == {0.0}
    assert all(p.downbeats[0] <= 1.5 + 3 * 60 / piece.tempo for p in performances)
