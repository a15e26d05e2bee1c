"""From single hash hits to places where a clip fits: votes for a track, an offset and a speed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import FRAME_S

CELL_FRAMES = 8
"""Width of the coarse search: two cells hold the drift of 10 s at ±3 % speed (13 frames)."""
N_CANDIDATES = 12
SPEEDS = np.linspace(-0.04, 0.04, 33)
"""Playback speeds tried, relative; steps of 0.25 % drift less than 1.3 frames in 12 s."""
SPAN_FRAMES = 0.5 / FRAME_S
MOST_HITS = 20_000
"""Hits examined closely; if there are more, those in the fullest places."""
_PLACES = 1 << 19
_REACH = 24
_BINS = 2 * _REACH + 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where the clip may fit.

    Attributes:
        votes: Different triplets of the clip found there, in the right order and distance.
        spans: Different half-seconds of the clip in which they begin. Chance and shared loops
            bring votes in few places; the right track brings them everywhere.
        offset: Where the clip begins, in frames on the segment's timeline.
        position: A position on the timeline inside the track itself.
        speed: Playback speed of the clip relative to the track's, minus 1.
    """

    votes: int
    spans: int
    offset: float
    position: int
    speed: float


def find_candidates(
    positions: NDArray[np.uint32], triplets: NDArray[np.int32], frames: NDArray[np.float32]
) -> list[Candidate]:
    """Find where a clip fits best.

    Args:
        positions: uint32 ``[H]``, hits on the timeline.
        triplets: int32 ``[H]``, the clip's triplet that each hit belongs to.
        frames: float32 ``[n_triplets]``, the triplets' times in the clip.

    Returns:
        At most `N_CANDIDATES`, by descending votes.
    """
    if not len(positions):
        return []
    if len(positions) > MOST_HITS:
        crowded = _crowded(positions, np.rint(frames).astype(np.int32).view(np.uint32)[triplets])
        positions, triplets = positions[crowded], triplets[crowded]
    time = frames[triplets].astype(np.float64)
    shift = positions.astype(np.float64) - time
    order = np.argsort(shift, kind="stable")
    shift, time, triplets, positions = shift[order], time[order], triplets[order], positions[order]
    candidates = [_refine(centre, shift, time, triplets, positions) for centre in _densest(shift)]
    return sorted(candidates, key=lambda c: -c.votes)


def _crowded(positions: NDArray[np.uint32], time: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the hits with the most others near their shift, about `MOST_HITS` of them.

    In a large index nearly all hits are chance, and sorting them would take most of a look-up.
    Several cells share an entry of the table of counts, which can only let more through.
    """
    # Modulo 2^32, which only affects which cells share an entry.
    place = ((positions - time) // np.uint32(CELL_FRAMES)) & np.uint32(_PLACES - 1)
    counts = np.bincount(place, minlength=_PLACES).astype(np.uint32)
    around = counts.copy()
    around[1:] += counts[:-1]
    around[:-1] += counts[1:]
    around[0] += counts[-1]
    around[-1] += counts[0]
    crowd = around[place]
    by_crowd = np.bincount(crowd)
    at_least = np.cumsum(by_crowd[::-1])[::-1]
    fewest = int(np.argmax(at_least <= MOST_HITS)) if at_least[-1] <= MOST_HITS else len(by_crowd)
    return np.flatnonzero(crowd >= min(fewest, len(by_crowd) - 1))


def _densest(shift: NDArray[np.float64]) -> list[float]:
    """Return the centres of the fullest pairs of neighbouring cells, fullest first, none twice."""
    cell = np.floor(shift / CELL_FRAMES).astype(np.int64)
    first = np.flatnonzero(np.diff(cell, prepend=cell[0] - 1))
    size = np.diff(first, append=len(cell))
    cell = cell[first]
    with_next = size.copy()
    is_next = np.diff(cell) == 1
    with_next[:-1][is_next] += size[1:][is_next]
    most = min(len(cell), 3 * N_CANDIDATES)
    fullest = np.argpartition(-with_next, most - 1)[:most]
    fullest = fullest[np.argsort(-with_next[fullest], kind="stable")]
    chosen: list[int] = []
    for c in cell[fullest].tolist():
        if all(abs(c - other) > 1 for other in chosen):
            chosen.append(c)
        if len(chosen) == N_CANDIDATES:
            break
    return [float((c + 1) * CELL_FRAMES) for c in chosen]


def _refine(
    centre: float,
    shift: NDArray[np.float64],
    time: NDArray[np.float64],
    triplets: NDArray[np.int32],
    positions: NDArray[np.uint32],
) -> Candidate:
    """Find the offset and speed near ``centre`` that most hits agree on; ``shift`` is ascending."""
    low, high = np.searchsorted(shift, [centre - _REACH, centre + _REACH])
    near, when = shift[low:high] - centre, time[low:high]
    # At speed 1 + v a clip's time t is at t · (1 + v) in the track.
    fine = np.rint(near - SPEEDS[:, None] * when).astype(np.int64) + _REACH
    inside = (fine >= 0) & (fine < _BINS)
    index = np.where(inside, fine, 0) + np.arange(len(SPEEDS))[:, None] * _BINS
    counts = np.bincount(index[inside], minlength=len(SPEEDS) * _BINS).reshape(-1, _BINS)
    # Neighbouring bins count half, so that a group split by rounding is found whole.
    smooth = counts.astype(np.float64)
    smooth[:, 1:] += 0.5 * counts[:, :-1]
    smooth[:, :-1] += 0.5 * counts[:, 1:]
    best, where = np.unravel_index(int(smooth.argmax()), smooth.shape)
    agrees = np.abs(fine[best] - where) <= 1
    _, firsts = np.unique(triplets[low:high][agrees], return_index=True)
    return Candidate(
        votes=len(firsts),
        spans=len(np.unique(np.floor(when[agrees][firsts] / SPAN_FRAMES))),
        offset=centre + float(where) - _REACH,
        position=int(positions[low:high][agrees][0]),
        speed=float(SPEEDS[best]),
    )
