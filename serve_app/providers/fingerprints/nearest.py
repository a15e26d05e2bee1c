"""Finds tracks that differ least from a clip, among all places or those left by a coarse look."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.coarse import STEP, Pair, choose, differences, places_below
from models.fingerprint.subfingerprints import (
    N_BANDS,
    distances,
    distances_at,
    to_subfingerprints,
)
from serve_app.providers.fingerprints.segment import Segment

Segments = Sequence[tuple[Segment, frozenset[int]]]
"""Segments, with the dropped tracks of each."""
MOST_COMPARED = 300_000_000
"""Pairs of sub-fingerprints, the clip's and the tracks': .2 s of a core. All are compared if that
keeps the bound, as for a clip of 10 s with 2,400 tracks of 210 s; otherwise coarse ones."""
FEWEST_MOMENTS = 4
"""Moments of a clip in a coarse look, for up to 134,000 tracks of 210 s. If the bound leaves fewer,
nothing is found."""
N_PLACES = 1 << 15
"""About how many places of a coarse look are then examined closely."""
N_SAMPLE = 1 << 16
"""Coarse places, spread over the index, that show how few bits the nearest `N_PLACES` differ by."""
N_NEAREST = 512
"""Tracks returned, those with the fewest different bits."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """A track's nearest place: `row` in its segment, and by how many bits it differs."""

    segment: Segment
    track: int
    row: int
    distance: int


def find_nearest(
    segments: Segments, changes: NDArray[np.float32], weights: NDArray[np.float32]
) -> list[Nearest]:
    """Find the `N_NEAREST` tracks that differ least from a clip, nearest first.

    Args:
        segments: Segments to search.
        changes: Band changes of the clip.
        weights: Band changes of the clip, as returned by `weigh`.

    Returns:
        The tracks; empty if the index is too large.
    """
    asked = to_subfingerprints(changes)
    n_rows = sum(len(segment.subfingerprints.rows) for segment, _ in segments)
    if n_rows * len(asked) <= MOST_COMPARED:
        found = [one for segment, dropped in segments for one in _of_all(segment, dropped, asked)]
    else:
        found = _of_likely(segments, asked, weights)
    return sorted(found, key=lambda one: one.distance)[:N_NEAREST]


def _of_all(segment: Segment, dropped: frozenset[int], asked: NDArray[np.uint64]) -> list[Nearest]:
    kept = segment.subfingerprints
    begins, ends = kept.starts[:-1], kept.starts[1:] - len(asked) + 1
    is_asked = ends > begins
    is_asked[list(dropped)] = False
    tracks = np.flatnonzero(is_asked)
    if not len(tracks):
        return []
    differs = distances(kept.rows, asked)
    begins, ends = begins[tracks], ends[tracks]
    # Ranges from each track's first place to its last; those between tracks are skipped by [::2].
    edges = np.stack([begins, ends], axis=1).ravel()[:-1]
    least = np.minimum.reduceat(differs[: ends[-1]], edges)[::2]
    return [
        Nearest(
            segment,
            int(tracks[i]),
            int(begins[i]) + int(differs[begins[i] : ends[i]].argmin()),
            int(least[i]),
        )
        for i in np.argsort(least, kind="stable")[:N_NEAREST].tolist()
    ]


def _of_likely(
    segments: Segments, asked: NDArray[np.uint64], weights: NDArray[np.float32]
) -> list[Nearest]:
    """Compare a few telling moments with every third place, and the whole clip where these fit."""
    n_kept = sum(len(segment.subfingerprints.coarse) for segment, _ in segments)
    pairs = choose(weights, MOST_COMPARED // max(n_kept, 1))
    if 2 * len(pairs) < FEWEST_MOMENTS:
        return []
    below = _usually_below(segments, pairs, n_kept)
    return [
        one
        for segment, dropped in segments
        for one in _of_places(segment, *_below(segment, dropped, pairs, below, asked), asked)
    ]


def _usually_below(segments: Segments, pairs: list[Pair], n_kept: int) -> int:
    """Return the number of bits below which the clip differs at about `N_PLACES` places."""
    if n_kept <= N_PLACES:
        return N_BANDS * len(pairs) + 1
    sampled = []
    for segment, _ in segments:
        kept = segment.subfingerprints.coarse
        n_places = _n_places(kept, pairs)
        wanted = min(n_places, -(-N_SAMPLE * len(kept) // n_kept))
        places = np.linspace(0, n_places - 1, wanted).astype(np.int64)
        sampled.append(differences(kept, pairs, places))
    ranked = np.sort(np.concatenate(sampled))
    return int(ranked[len(ranked) * N_PLACES // n_kept])


def _n_places(kept: NDArray[np.uint64], pairs: list[Pair]) -> int:
    return max(len(kept) - max(max(pair.first, pair.second) for pair in pairs), 0)


def _below(
    segment: Segment,
    dropped: frozenset[int],
    pairs: list[Pair],
    below: int,
    asked: NDArray[np.uint64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places where the clip differs by fewer than ``below`` bits, as tracks and rows."""
    kept = segment.subfingerprints
    found = places_below(kept.coarse, pairs, _n_places(kept.coarse, pairs), below)
    places = np.concatenate([np.zeros(0, np.int64), *found])
    tracks = np.searchsorted(kept.coarse_starts, places, side="right") - 1
    rows = kept.starts[tracks] + STEP * (places - kept.coarse_starts[tracks])
    counts = (rows + len(asked) <= kept.starts[tracks + 1]) & ~np.isin(tracks, list(dropped))
    return tracks[counts], rows[counts]


def _of_places(
    segment: Segment,
    tracks: NDArray[np.int64],
    rows: NDArray[np.int64],
    asked: NDArray[np.uint64],
) -> list[Nearest]:
    """Compare a whole clip with places and those next to them."""
    if not len(rows):
        return []
    kept = segment.subfingerprints
    beside = rows[:, None] + np.arange(-(STEP // 2), STEP // 2 + 1)
    first, last = kept.starts[tracks], kept.starts[tracks + 1] - len(asked)
    beside = np.clip(beside, first[:, None], last[:, None])
    differs = distances_at(kept.rows, asked, beside.ravel()).reshape(beside.shape)
    best = differs.argmin(axis=1)
    least = differs[np.arange(len(best)), best]
    order = np.lexsort((least, tracks))
    of_track = order[np.unique(tracks[order], return_index=True)[1]]
    nearest = of_track[np.argsort(least[of_track], kind="stable")][:N_NEAREST]
    return [
        Nearest(segment, int(tracks[i]), int(beside[i, best[i]]), int(least[i]))
        for i in nearest.tolist()
    ]
