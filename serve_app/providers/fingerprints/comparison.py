"""The last step of recognition: compares a clip's band changes with every place of every track."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.subfingerprints import correlate, weigh
from serve_app.providers.fingerprints.nearest import Nearest, Segments, find_nearest
from serve_app.providers.fingerprints.segment import Segment

SHORTEST = 12
"""Least sub-fingerprints in a clip, those of 2.1 s; with fewer nothing is compared."""
N_USUAL = 1024
"""Places, spread over the index, that show what is usual for a clip."""
FEWEST_USUAL = 200
"""With fewer places, half a minute of music, it is unknown what is usual."""
N_TOLD = 8
"""Number of tracks returned, those with the largest correlations."""
N_OWN = 128
"""Places, spread over a track, that show what is usual for it."""
APART = 5
"""Distance in sub-fingerprints; nearer places are alike."""
LEAST_DEVIATION = 1e-3
"""Least deviation of the correlations there. Chance alone makes .013 for a clip of 12 s, rounding
1e-8 if all places are the same."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A place that a clip's changes resemble.

    Attributes:
        segment: The segment that holds the track.
        track: Its number in the segment.
        place: Index of the track's sub-fingerprint at which the clip begins.
        likeness: By how many standard deviations the clip is more like it than like other places of
            all tracks and of its own track: repetitive music resembles much else of its tempo.
    """

    segment: Segment
    track: int
    place: int
    likeness: float


def compare(segments: Segments, changes: NDArray[np.float32]) -> list[Compared]:
    """Find the tracks that a clip resembles most.

    Args:
        segments: Segments, with the dropped tracks of each.
        changes: Band changes of the clip; see `models.fingerprint.band_changes`.

    Returns:
        At most `N_TOLD` tracks, the most alike first. Empty for silence, for a short clip, and in
        an index that is too small or too large.
    """
    n_rows = sum(len(segment.subfingerprints.rows) for segment, _ in segments)
    if not n_rows or len(changes) < SHORTEST or not (changes > 0).any():
        return []
    weights = weigh(changes)
    usual = np.concatenate([_usual(segment, weights, n_rows) for segment, _ in segments])
    if len(usual) < FEWEST_USUAL or usual.std() < LEAST_DEVIATION:
        return []
    nearest = find_nearest(segments, changes, weights)
    closest = sorted(((*_closest(one, weights), one) for one in nearest), key=lambda item: -item[0])
    mean, variance = float(usual.mean()), float(usual.var())
    found = []
    for correlation, row, one in closest[:N_TOLD]:
        own = _own_variance(one, row, weights)
        deviation = math.sqrt((variance + (variance if own is None else own)) / 2)
        place = row - int(one.segment.subfingerprints.starts[one.track])
        found.append(Compared(one.segment, one.track, place, (correlation - mean) / deviation))
    return sorted(found, key=lambda one: -one.likeness)


def _own_variance(near: Nearest, row: int, weights: NDArray[np.float32]) -> float | None:
    """Return the variance of correlations at a track's other places; None if there are too few."""
    kept = near.segment.subfingerprints
    start, end = (int(edge) for edge in kept.starts[near.track : near.track + 2])
    places = np.unique(np.linspace(start, end - len(weights), N_OWN).astype(np.int64))
    others = places[np.abs(places - row) >= APART]
    return float(correlate(kept.rows, others, weights).var()) if len(others) >= N_OWN / 4 else None


def _usual(segment: Segment, weights: NDArray[np.float32], n_rows: int) -> NDArray[np.float32]:
    """Return the correlations at evenly spread places of a segment, except those of silence."""
    rows = segment.subfingerprints.rows
    n_places = len(rows) - len(weights) + 1
    if n_places < 1:
        return np.zeros(0, np.float32)
    wanted = min(n_places, -(-N_USUAL * len(rows) // n_rows))
    places = np.linspace(0, n_places - 1, wanted).astype(np.int64)
    return correlate(rows, places[rows[places] != 0], weights)


def _closest(near: Nearest, weights: NDArray[np.float32]) -> tuple[float, int]:
    """Return the largest correlation at a place or next to it, and its row."""
    kept = near.segment.subfingerprints
    start, end = (int(edge) for edge in kept.starts[near.track : near.track + 2])
    places = np.arange(max(near.row - 1, start), min(near.row + 1, end - len(weights)) + 1)
    found = correlate(kept.rows, places, weights)
    best = int(found.argmax())
    return float(found[best]), int(places[best])
