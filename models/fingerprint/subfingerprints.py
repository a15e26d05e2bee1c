"""Sub-fingerprints: how a sound's bands change relative to their neighbours, a bit for each of 64.

Landmarks are the strongest points of a sound that survive noise. This is the opposite: every band
of every eighth of a second contributes a little, no matter how weak it is, and a clip is compared
with a place as a whole. It costs a comparison with every place of every track, so it comes last.
"""

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import HOP_LENGTH as FRAME_LENGTH

HOP_LENGTH = 1378
"""Samples at `models.fingerprint.landmarks.SAMPLE_RATE`: eight frames per second."""
HOP_FRAMES = HOP_LENGTH / FRAME_LENGTH
"""The same in frames of the landmarks."""
N_BANDS = 64
"""Semitones, from 79 Hz to 3 kHz."""


def to_subfingerprints(changes: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Keep which bands rise, ``[n, N_BANDS]`` to ``[n]``; an unchanged band counts as falling."""
    return np.packbits(changes > 0, axis=1).view(np.uint64)[:, 0]


def distances(kept: NDArray[np.uint64], asked: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Count the bits by which a clip differs from the kept sub-fingerprints.

    Args:
        kept: uint64 ``[N]``, sub-fingerprints of tracks.
        asked: uint64 ``[M]``, M ≤ N, those of the clip.

    Returns:
        uint16 ``[N - M + 1]``, one for every place where the clip fits.
    """
    found = np.zeros(len(kept) - len(asked) + 1, np.uint16)
    differs, bits = np.empty(_PLACES_AT_ONCE, np.uint64), np.empty(_PLACES_AT_ONCE, np.uint8)
    for begin in range(0, len(found), _PLACES_AT_ONCE):
        part = found[begin : begin + _PLACES_AT_ONCE]
        n = len(part)
        for i, wanted in enumerate(asked, begin):
            np.bitwise_xor(kept[i : i + n], wanted, out=differs[:n])
            part += np.bitwise_count(differs[:n], out=bits[:n])
    return found


_PLACES_AT_ONCE = 1 << 15
"""256 kB: the compared values fit into a core's own cache."""


def distances_at(
    kept: NDArray[np.uint64], asked: NDArray[np.uint64], places: NDArray[np.int64]
) -> NDArray[np.uint16]:
    """Count them only at some places; for places near one another, `distances` is faster."""
    windows = np.lib.stride_tricks.sliding_window_view(kept, len(asked))
    found = np.empty(len(places), np.uint16)
    for begin in range(0, len(places), _APART_AT_ONCE):
        part = slice(begin, begin + _APART_AT_ONCE)
        differs = np.bitwise_count(windows[places[part]] ^ asked)
        differs.sum(axis=1, dtype=np.uint16, out=found[part])
    return found


def correlate(
    kept: NDArray[np.uint64], places: NDArray[np.int64], changes: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Correlate a clip's changes, with their sizes, with the kept bits.

    Args:
        kept: uint64 ``[N]``, sub-fingerprints of tracks.
        places: int64 ``[P]``, where the clip may begin, 0 to N - M.
        changes: float32 ``[M, N_BANDS]``, the clip's, from `weigh`.

    Returns:
        ``[P]``, -1 to 1.
    """
    weights = changes.reshape(-1)
    scale = max(float(np.abs(weights).sum()), 1e-6)
    found = np.zeros(len(places), np.float32)
    for begin in range(0, len(places), _APART_AT_ONCE):
        part = places[begin : begin + _APART_AT_ONCE]
        rows = kept[part[:, None] + np.arange(len(changes))]
        bits = np.unpackbits(rows.view(np.uint8), axis=1).astype(np.float32)
        found[begin : begin + len(part)] = (2 * (bits @ weights) - weights.sum()) / scale
    return found


_APART_AT_ONCE = 256
"""Six MB when correlating a clip of 12 s."""


def weigh(changes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bound a clip's changes to ±1, as noise also makes large ones. Silence stays 0."""
    bounded: NDArray[np.float32] = np.tanh(changes / max(float(changes.std()), 1e-6))
    return bounded
