"""Hashes of landmark triplets, for building an index and for querying it.

A hash encodes an anchor's rough pitch, two exact pitch ratios and two time differences. Ratios do
not change with playback speed and the rest is coarse enough for ±3 %, so one index serves all
speeds. A query makes more triplets than an index keeps, and several hashes per triplet: one for
every neighbouring cell from which a small measuring error could have moved it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import Fingerprint

ANCHOR_CELLS = 12
"""Cells per octave. At ±3 % speed (half a cell) an anchor's pitch stays in the nearer two."""
RATIO_CELLS = 40
"""Cells per octave for a pitch ratio: 1.7 %, three times the error of an interpolated landmark."""
FRAMES_PER_CELL = 2.0
NEAREST_FRAMES = 2.0
FURTHEST_FRAMES = 48.0
"""A partner lies 0.05 to 1.1 s after its anchor …"""
WIDEST_OCTAVES = 1.0
"""… and less than an octave from it."""
LOOK_AHEAD = 60
DENSE_LOOK_AHEAD = 120
"""Landmarks after the anchor among which partners are sought."""
INDEX_PARTNERS = 4
INDEX_TRIPLETS = 2
"""Per anchor, an index keeps the most prominent 2 of the 6 triplets of its 4 strongest partners."""

QUERY_PARTNERS = 4
"""Per anchor, a query looks up all 6 triplets of its 4 strongest partners …"""
DENSE_PARTNERS = 6
"""… and for a clip's dense landmarks all 15 of its 6 strongest, four times as much to look up."""

N_FACTORS = 5
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class QueryHashes:
    """What to look up.

    Attributes:
        hashes: uint32 ``[H]``.
        triplets: int32 ``[H]``, which triplet each hash came from.
        frames: float32 ``[n_triplets]``, each triplet's anchor time.
        duration_s: Length of the clip.
    """

    hashes: NDArray[np.uint32]
    triplets: NDArray[np.int32]
    frames: NDArray[np.float32]
    duration_s: float


def index_hashes(fingerprint: Fingerprint) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Make the hashes that an index stores.

    Args:
        fingerprint: A whole track's.

    Returns:
        Hashes and their anchors' frames, both uint32 ``[H]``, about 50 per second; empty for
        silence and for fewer than three landmarks.
    """
    frames, measures = triplets(fingerprint, INDEX_PARTNERS, INDEX_TRIPLETS)
    cells = np.floor(measures).astype(np.int64)
    return hash_cells(cells), np.maximum(np.rint(frames), 0).astype(np.uint32)


def query_hashes(fingerprint: Fingerprint, *, is_dense: bool = False) -> QueryHashes:
    """Make the hashes to look up for a clip.

    Four hashes per triplet: the anchor's nearer neighbouring cell covers other speeds, and the
    neighbour of the measure that lies nearest to a cell's edge covers measuring errors.

    Args:
        fingerprint: The clip's.
        is_dense: Whether it holds the clip's dense landmarks.

    Returns:
        No hash occurs twice for one triplet. Empty for silence.
    """
    frames, measures = (
        triplets(fingerprint, DENSE_PARTNERS, None, DENSE_LOOK_AHEAD)
        if is_dense
        else triplets(fingerprint, QUERY_PARTNERS, None)
    )
    cells = np.floor(measures).astype(np.int64)
    place = measures - cells
    step = np.where(place < 0.5, -1, 1)
    rows = np.arange(len(cells))
    doubtful = 1 + np.argmin(np.minimum(place, 1 - place)[:, 1:], axis=1)
    hashes = []
    for is_other_measure in (False, True):
        for is_other_anchor in (False, True):
            probe = cells.copy()
            if is_other_anchor:
                probe[:, 0] += step[:, 0]
            if is_other_measure:
                probe[rows, doubtful] += step[rows, doubtful]
            hashes.append(hash_cells(probe))
    return QueryHashes(
        hashes=np.concatenate(hashes),
        triplets=np.tile(rows.astype(np.int32), len(hashes)),
        frames=frames,
        duration_s=fingerprint.duration_s,
    )


def triplets(
    fingerprint: Fingerprint, n_partners: int, n_kept: int | None, look_ahead: int = LOOK_AHEAD
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Combine landmarks.

    Returns:
        Anchor frames, float32 ``[K]``, and measures in cells, float64 ``[K, N_FACTORS]``: anchor
        pitch, two ratios, two time differences.
    """
    n = len(fingerprint)
    if n < 3:
        return np.zeros(0, np.float32), np.zeros((0, N_FACTORS))
    frames = fingerprint.frames.astype(np.float64)
    pitches = fingerprint.pitches.astype(np.float64)
    partner = np.arange(n)[:, None] + np.arange(1, min(look_ahead, n - 1) + 1)
    exists = partner < n
    partner = np.minimum(partner, n - 1)
    after = frames[partner] - frames[:, None]
    ratio = pitches[partner] - pitches[:, None]
    fits = exists & (after >= NEAREST_FRAMES) & (after < FURTHEST_FRAMES)
    fits &= np.abs(ratio) < WIDEST_OCTAVES
    prominence = np.where(fits, fingerprint.prominences[partner], -np.inf)

    n_partners = min(n_partners, partner.shape[1])
    best = np.argsort(-prominence, axis=1, kind="stable")[:, :n_partners]
    best.sort(axis=1)  # back to chronological order
    prominence = np.take_along_axis(prominence, best, axis=1)
    first, second = np.triu_indices(n_partners, 1)
    both = prominence[:, first] + prominence[:, second]
    keep = np.isfinite(both)
    if n_kept is not None and n_kept < len(first):
        strongest = np.argsort(-both, axis=1, kind="stable")[:, :n_kept]
        chosen = np.zeros_like(keep)
        np.put_along_axis(chosen, strongest, True, axis=1)
        keep &= chosen
    anchor, pair = np.nonzero(keep)
    one, two = best[anchor, first[pair]], best[anchor, second[pair]]
    measures = np.stack(
        [
            pitches[anchor] * ANCHOR_CELLS,
            (ratio[anchor, one] + WIDEST_OCTAVES) * RATIO_CELLS,
            (ratio[anchor, two] + WIDEST_OCTAVES) * RATIO_CELLS,
            after[anchor, one] / FRAMES_PER_CELL,
            after[anchor, two] / FRAMES_PER_CELL,
        ],
        axis=1,
    )
    return fingerprint.frames[anchor], measures


def hash_cells(cells: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Mix cells ``[K, N_FACTORS]`` into evenly spread uint32 ``[K]`` (Fibonacci hashing)."""
    anchor, ratio_1, ratio_2, time_1, time_2 = cells.T.astype(np.uint64)
    packed = (((anchor * 128 + ratio_1) * 128 + ratio_2) * 32 + time_1) * 32 + time_2
    mixed: NDArray[np.uint32] = ((packed * _MULTIPLIER) >> np.uint64(32)).astype(np.uint32)
    return mixed
