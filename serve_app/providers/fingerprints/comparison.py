"""The last look: a clip's band changes against every place of every track."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.subfingerprints import correlate, distances, to_subfingerprints, weigh
from serve_app.providers.fingerprints.segment import Segment

SHORTEST = 12
"""Sub-fingerprints of a clip, which 2.1 s have, under which nothing is compared."""
MOST_COMPARED = 300_000_000
"""Pairs of sub-fingerprints in one look: .2 s of a core."""
STEPS = (1, 2, 3)
"""Of a clip and of the tracks every so many-th sub-fingerprint is compared: all if that keeps the
bound, as for a clip of 10 s with 2,400 tracks of 210 s; up to 9,500 and up to 21,000 if not."""
N_NEAREST = 512
"""Tracks with the fewest different bits, which are looked at closely."""
N_USUAL = 1024
"""Places, spread over the index, that tell what is usual for a clip."""
FEWEST_USUAL = 200
"""With fewer, half a minute of music, nothing tells what is usual."""
N_TOLD = 8
"""Tracks with the largest correlations, which are answered with."""
N_OWN = 128
"""Places, spread over a track, that tell what is usual for it."""
APART = 5
"""Sub-fingerprints: nearer places are alike."""
LEAST_DEVIATION = 1e-3
"""Of the correlations there. Chance alone makes .013 for a clip of 12 s, rounding 1e-8 where all
places are the same."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A place that a clip's changes are like.

    Attributes:
        segment: Whose track it is in.
        track: Its number in the segment.
        place: Which sub-fingerprint of the track the clip begins at.
        likeness: By how many standard deviations the clip is more like it than like other places of
            all tracks and of its own: what repeats itself is like much that is of its tempo.
    """

    segment: Segment
    track: int
    place: int
    likeness: float


@dataclass(frozen=True, slots=True)
class _Nearest:
    segment: Segment
    track: int
    row: int
    distance: int


def compare(
    segments: Sequence[tuple[Segment, frozenset[int]]], changes: NDArray[np.float32]
) -> list[Compared]:
    """Find the tracks that a clip is most like.

    Args:
        segments: With the tracks of each that do not count.
        changes: Of the clip; see `models.fingerprint.band_changes`.

    Returns:
        At most `N_TOLD` tracks, the most alike first. None for silence, for a short clip, and in
        an index that is too small or too large.
    """
    asked = to_subfingerprints(changes)
    n_rows = sum(len(segment.subfingerprints.rows) for segment, _ in segments)
    n_pairs = n_rows * len(asked)
    step = next((step for step in STEPS if n_pairs <= MOST_COMPARED * step**2), None)
    if step is None or not n_pairs or not asked.any() or len(asked) < SHORTEST:
        return []
    weights = weigh(changes)
    usual = np.concatenate([_usual(segment, weights, n_rows) for segment, _ in segments])
    if len(usual) < FEWEST_USUAL or usual.std() < LEAST_DEVIATION:
        return []
    nearest = [
        one for segment, dropped in segments for one in _nearest(segment, dropped, asked, step)
    ]
    nearest = sorted(nearest, key=lambda one: one.distance)[:N_NEAREST]
    closest = sorted(
        ((*_closest(one, weights, step), one) for one in nearest), key=lambda item: -item[0]
    )
    mean, variance = float(usual.mean()), float(usual.var())
    found = []
    for correlation, row, one in closest[:N_TOLD]:
        own = _own_variance(one, row, weights)
        deviation = math.sqrt((variance + (variance if own is None else own)) / 2)
        place = row - int(one.segment.subfingerprints.starts[one.track])
        found.append(Compared(one.segment, one.track, place, (correlation - mean) / deviation))
    return sorted(found, key=lambda one: -one.likeness)


def _own_variance(near: _Nearest, row: int, weights: NDArray[np.float32]) -> float | None:
    """Variance of correlations at a track's other places; None where it has hardly any."""
    kept = near.segment.subfingerprints
    start, end = (int(edge) for edge in kept.starts[near.track : near.track + 2])
    places = np.unique(np.linspace(start, end - len(weights), N_OWN).astype(np.int64))
    others = places[np.abs(places - row) >= APART]
    return float(correlate(kept.rows, others, weights).var()) if len(others) >= N_OWN / 4 else None


def _usual(segment: Segment, weights: NDArray[np.float32], n_rows: int) -> NDArray[np.float32]:
    """Correlations at evenly spread places of a segment, those of silence left out."""
    rows = segment.subfingerprints.rows
    n_places = len(rows) - len(weights) + 1
    if n_places < 1:
        return np.zeros(0, np.float32)
    wanted = min(n_places, -(-N_USUAL * len(rows) // n_rows))
    places = np.linspace(0, n_places - 1, wanted).astype(np.int64)
    return correlate(rows, places[rows[places] != 0], weights)


def _nearest(
    segment: Segment, dropped: frozenset[int], asked: NDArray[np.uint64], step: int
) -> list[_Nearest]:
    """Give the tracks of a segment that differ least, each with its best place."""
    starts = segment.subfingerprints.starts
    begins = -(-starts[:-1] // step)
    ends = (starts[1:] - len(asked)) // step + 1
    is_asked = ends > begins
    is_asked[list(dropped)] = False
    tracks = np.flatnonzero(is_asked)
    if not len(tracks):
        return []
    differs = distances(segment.subfingerprints.rows, asked, step)
    begins, ends = begins[tracks], ends[tracks]
    # From each track's first place to its last, and, every second one, on to the next track's.
    edges = np.stack([begins, ends], axis=1).ravel()[:-1]
    least = np.minimum.reduceat(differs[: ends[-1]], edges)[::2]
    return [
        _Nearest(
            segment,
            int(tracks[i]),
            step * (int(begins[i]) + int(differs[begins[i] : ends[i]].argmin())),
            int(least[i]),
        )
        for i in np.argsort(least, kind="stable")[:N_NEAREST].tolist()
    ]


def _closest(near: _Nearest, weights: NDArray[np.float32], step: int) -> tuple[float, int]:
    """Give the correlation at a place or one beside it, whichever is larger, and its row."""
    kept = near.segment.subfingerprints
    start, end = (int(edge) for edge in kept.starts[near.track : near.track + 2])
    reach = max(step - 1, 1)
    places = np.arange(max(near.row - reach, start), min(near.row + reach, end - len(weights)) + 1)
    found = correlate(kept.rows, places, weights)
    best = int(found.argmax())
    return float(found[best]), int(places[best])
