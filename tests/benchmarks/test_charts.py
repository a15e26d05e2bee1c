"""A game's charts as ground truth: beats from the sound, bars where the phrases show them."""

import mido
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.accuracy.charts import annotate, first_beat

RATE, BPM, N_BEATS = 22_050, 150.0, 96
TICKS = 96
PERIOD_S = 60 / BPM


def chart(phrases: list[float]) -> mido.MidiFile:
    """Write phrases of two notes, half a beat apart, that begin at these beats."""
    midi = mido.MidiFile(ticks_per_beat=TICKS)
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(BPM))])
    midi.tracks.append(track)
    now = 0
    for at in (at + step for at in phrases for step in (0, 0.5)):
        for kind, time in (("note_on", at), ("note_off", at + 0.25)):
            ticks = round(time * TICKS)
            track.append(mido.Message(kind, note=97, velocity=100, time=ticks - now))
            now = ticks
    return midi


def clicks(late_s: float) -> NDArray[np.float32]:
    samples = np.random.default_rng(0).normal(0, 1e-3, round(N_BEATS * PERIOD_S * RATE))
    for beat in range(N_BEATS):
        start = round((beat * PERIOD_S + late_s) * RATE)
        samples[start : start + 400] += np.sin(np.arange(400)) * np.exp(-np.arange(400) / 80)
    return samples.astype(np.float32)


BARS = [1, 5, 9, 13, 21, 29, 33, 39.5, 41, 49]
"""Phrases, most of them on the second beat from the start of the chart, some after long rests."""


def test_beats_lie_where_the_sound_has_them() -> None:
    truth = annotate(chart(BARS), clicks(0.03), RATE)
    assert truth["tempo"] == BPM
    assert truth["tempo_level"] == "sure"
    expected = np.arange(N_BEATS) * PERIOD_S + 0.03
    assert truth["beats"] == pytest.approx(expected.tolist(), abs=0.004)
    assert truth["downbeats"] == truth["beats"][1::4]


@pytest.mark.parametrize(
    ("phrases", "first"),
    [
        (BARS, 1),
        ([0, 4, 8, 16, 18, 24, 32], 0),
        ([0, 6, 12, 18, 24, 30], None),  # as many on the third beat as on the first
        ([0, 4, 8, 12, 16, 20, 26], None),  # after the one long rest, it is on the third beat
        ([0.5, 4.5, 8.5], None),
    ],
)
def test_bars_are_told_only_where_phrases_agree(phrases: list[float], first: int | None) -> None:
    assert first_beat(chart(phrases)) == first


def test_bars_that_nobody_tells_are_left_out() -> None:
    assert "downbeats" not in annotate(chart([0, 6, 12, 18]), clicks(0.0), RATE)
