"""The last look: a clip's band changes against every place of every track."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.subfingerprints import correlate, weigh
from serve_app.providers.fingerprints.nearest import Nearest, Segments, find_nearest
from serve_app.providers.fingerprints.segment import Segment

SHORTEST = 12
"""Sub-fingerprints of a clip, which 2.1 s have, under which nothing is compared."""
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


def compare(segments: Segments, changes: NDArray[np.float32]) -> list[Compared]:
    """Find the tracks that a clip is most like.

    Args:
        segments: With the tracks of each that do not count.
        changes: Of the clip; see `models.fingerprint.band_changes`.

    Returns:
        At most `N_TOLD` tracks, the most alike first. None for silence, for a short clip, and in
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


def _closest(near: Nearest, weights: NDArray[np.float32]) -> tuple[float, int]:
    """Return the correlation at a place or one beside it, whichever is larger, and its row."""
    kept = near.segment.subfingerprints
    start, end = (int(edge) for edge in kept.starts[near.track : near.track + 2])
    places = np.arange(max(near.row - 1, start), min(near.row + 1, end - len(weights)) + 1)
    found = correlate(kept.rows, places, weights)
    best = int(found.argmax())
    return float(found[best]), int(places[best])
