"""A track's beats as a few stretches of constant tempo, as DJ programs keep them.

Invariant: within a stretch the beats keep to the grid, at the tempo as it is written: a single beat
may be off by more than `TOLERANCE_S`, but not most of those around it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.analysis.records import TrackFeatures

TOLERANCE_S = 0.03
"""Jitter of a steady beat in the analysis; two drums 30 ms apart sound as one."""
AROUND = 5
"""Beats whose median deviation counts: one or two misplaced beats do not change the tempo."""
BPM_DIGITS = 2
MIN_BEATS = 4


@dataclass(frozen=True, slots=True)
class TempoMark:
    """The point where a tempo begins.

    Attributes:
        start_s: Time of the beat where it begins.
        bpm: Tempo, to `BPM_DIGITS` decimals.
        beat: Number of that beat in its bar, from 1.
    """

    start_s: float
    bpm: float
    beat: int


def beat_grid(features: TrackFeatures) -> list[TempoMark]:
    """Return the stretches of a track; none if it has fewer than four beats."""
    beats = np.array(features.beats)
    if len(beats) < MIN_BEATS:
        return []
    marks = []
    first = 0
    while len(beats) - first >= MIN_BEATS:
        last, start_s, bpm = _longest(beats, first)
        marks.append(TempoMark(start_s, bpm, _beat_of_bar(features, first)))
        first = last
    return marks


def _longest(beats: NDArray[np.float64], first: int) -> tuple[int, float, float]:
    """Extend a grid as far as it holds; return its last beat, its start and its BPM."""
    low, high = first + 1, len(beats) - 1
    best = _fit(beats[first : low + 1]) or (
        max(0.0, round(float(beats[first]), 3)),
        round(60.0 / float(beats[first + 1] - beats[first]), BPM_DIGITS),
    )
    while low < high:  # fit is not strictly monotonic in length, but nearly enough for bisection
        middle = (low + high + 1) // 2
        fit = _fit(beats[first : middle + 1])
        if fit is None:
            high = middle - 1
        else:
            low, best = middle, fit
    start_s, bpm = best
    off = np.abs(start_s + np.arange(low - first + 1) * 60.0 / bpm - beats[first : low + 1])
    while low > first + 1 and off[low - first] > TOLERANCE_S:
        low -= 1  # the next tempo begins where this one ends
    start_s, bpm = _fit(beats[first : low + 1]) or best
    return low, start_s, bpm


def _fit(beats: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return where a grid through beats begins and its tempo; None if the beats leave it."""
    if len(beats) <= AROUND // 2:
        return None
    index = np.arange(len(beats))
    period, start_s = np.polyfit(index, beats, 1)
    bpm = round(60.0 / period, BPM_DIGITS)
    # The tempo is rounded, so the best start is computed again.
    start_s = float(np.mean(beats - index * 60.0 / bpm))
    start_s = max(0.0, round(start_s, 3))
    off = np.pad(start_s + index * 60.0 / bpm - beats, AROUND // 2, mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(off, AROUND), axis=1)
    return None if np.abs(middle).max() > TOLERANCE_S else (start_s, bpm)


def _beat_of_bar(features: TrackFeatures, at: int) -> int:
    """Count from the downbeat before, or backwards from the first downbeat."""
    downbeats = np.searchsorted(features.beats, np.array(features.downbeats) - 1e-3)
    if not len(downbeats):
        return 1
    before = downbeats[downbeats <= at]
    if len(before):
        return int((at - before[-1]) % features.time_signature) + 1
    return int((at - downbeats[0]) % features.time_signature) + 1
