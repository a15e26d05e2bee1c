"""How far two clips have the same sound at the same place, as copies of one recording do.

Clips of one piece, or with one loop, share hashes too, but these only line up when shifted by the
time by which one clip begins later than the other.

References:
    Wang, "An industrial-strength audio search algorithm", ISMIR 2003.
"""

import numpy as np

from models.fingerprint.hashes import index_hashes
from models.fingerprint.landmarks import FRAME_S, Fingerprint

FEWEST_HASHES = 24
"""With fewer (silence, a lone tone) nothing agrees."""
_MOVED_FRAMES = 2
"""Farthest that a codec moves a landmark relative to the others of its clip."""


def agreement(one: Fingerprint, other: Fingerprint, most_s: float) -> float:
    """Share of two clips' hashes that both have at one time offset.

    Args:
        one: A clip's landmarks.
        other: Another clip's.
        most_s: Longest offset in seconds, either way.

    Returns:
        Ratio of hashes in both to hashes in either, at the best offset, 0 to 1.
    """
    (mine, at), (theirs, their_at) = index_hashes(one), index_hashes(other)
    if min(len(mine), len(theirs)) < FEWEST_HASHES:
        return 0.0
    order = np.argsort(theirs, kind="stable")
    theirs, their_at = theirs[order], their_at[order]
    first = np.searchsorted(theirs, mine, "left")
    n_alike = np.searchsorted(theirs, mine, "right") - first
    rank = np.arange(n_alike.sum()) - np.repeat(np.cumsum(n_alike) - n_alike, n_alike)
    alike = their_at[np.repeat(first, n_alike) + rank].astype(np.int64)
    offsets = alike - np.repeat(at, n_alike)
    most = round(most_s / FRAME_S)
    counts = np.bincount(offsets[np.abs(offsets) <= most] + most, minlength=2 * most + 1)
    together = np.convolve(counts, np.ones(2 * _MOVED_FRAMES + 1)).max()
    both = min(float(together), len(mine), len(theirs))
    return both / (len(mine) + len(theirs) - both)
