"""A short sketch of a fingerprint, which identifies a re-encoded copy of the same sound.

The share of values in which two sketches agree is about the share of hashes that the clips have in
common (MinHash). A copy through another codec keeps many of them, another recording almost none.

References:
    Broder, "On the resemblance and containment of documents", 1997.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.hashes import index_hashes
from models.fingerprint.landmarks import FRAME_S, Fingerprint

N_VALUES = 64
SAME_CLIP = 0.09
"""Two parts count as the same from this share of equal values, 6 of 64. Clips of different tracks
had at most 3 (361,000 pairs); MP3 at 128 kbit/s keeps 20 or more, at 64 kbit/s a median of 15."""
FEWEST_HASHES = 24
"""With fewer (silence, a lone tone) there is no sketch."""
N_PARTS = 3
"""A clip's parts of equal length are compared one by one: clips may overlap, or share a half. By
`SAME_CLIP`, a copy's parts all match in .98 of the clips from 20 tracks, 4 to 20 s long, in MP3 at
128 kbit/s, .90 at 64 and .95 in Opus at 64; in none of those that begin a second later."""
TIME_CELL_S = 1.0
"""Within a part, hashes include their time: a codec moves a clip by less than a tenth of this."""
N_KEYS = 32
"""Values of a whole clip that serve as keys: of copies that share a quarter of their hashes, as
after MP3 at 64 kbit/s, all but 1 in 10,000 have a key in common."""

# Random constants that are the same in every release of NumPy.
_RANDOM = np.frombuffer(hashlib.shake_128(b"afa sketch").digest(16 * N_VALUES), "<u8")
_FACTORS = _RANDOM[:N_VALUES].astype(np.uint64) | np.uint64(1)
_OFFSETS = _RANDOM[N_VALUES:].astype(np.uint64)
_CELL_FACTOR = np.uint32(0x9E3779B1)


def sketch_parts(fingerprint: Fingerprint) -> NDArray[np.uint32]:
    """Sketch the parts of a clip from their hashes and the times of these.

    Returns:
        uint32 ``[N_PARTS, N_VALUES]``; ``[0, N_VALUES]`` if a part has fewer than `FEWEST_HASHES`.
    """
    hashes, frames = index_hashes(fingerprint)
    cells = (frames * (FRAME_S / TIME_CELL_S)).astype(np.uint32)
    placed = hashes + cells * _CELL_FACTOR
    part = np.minimum(frames.astype(np.int64) * N_PARTS // fingerprint.n_frames, N_PARTS - 1)
    parts = [_least(placed[part == number]) for number in range(N_PARTS)]
    if not all(len(values) for values in parts):
        return np.zeros((0, N_VALUES), np.uint32)
    return np.stack(parts)


def _least(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    hashes = np.unique(hashes).astype(np.uint64)
    if len(hashes) < FEWEST_HASHES:
        return np.zeros(0, np.uint32)
    # Multiply-shift: each value is the first in its own random order of the hashes.
    order = (hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(32)
    least: NDArray[np.uint32] = order.min(axis=0).astype(np.uint32)
    return least


def parts_likeness(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> float:
    """Similarity of the least similar parts; 0 if either clip has no sketch."""
    if not len(one) or not len(other):
        return 0.0
    return float(np.mean(one == other, axis=1).min())


def sketch_keys(parts: NDArray[np.uint32]) -> list[str]:
    """Short strings, of which copies of a clip share at least one; none without a sketch."""
    if not len(parts):
        return []
    whole = parts.min(axis=0)
    return [f"{i:02x}{int(value):08x}" for i, value in enumerate(whole[:N_KEYS])]
