"""A short sketch of a fingerprint, by which a re-encoded copy of the same sound is recognised.

The share of values in which two sketches agree is about the share of hashes that the clips have in
common (MinHash).
A copy through another codec keeps a good part of them, another recording practically none.

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
"""Share of equal values, 6 of 64, from which two parts are the same. Clips of different tracks had
at most 3 (361,000 pairs); MP3 at 128 kbit/s keeps 20 or more, at 64 kbit/s 15 in the median."""
FEWEST_HASHES = 24
"""With less to compare (silence, a lone tone) there is no sketch."""
N_PARTS = 3
"""A clip's parts of equal length are compared one by one: clips may overlap, or share a half. All
three of a copy are the same by `SAME_CLIP` for .98 of clips of 20 tracks, 4 to 20 s long, in MP3 at
128 kbit/s, .90 at 64 and .95 in Opus at 64; of clips that begin a second later, for none."""
TIME_CELL_S = 1.0
"""Within a part a hash counts with its time: a codec moves a clip by less than a tenth of this."""
N_KEYS = 32
"""Values of a whole clip that serve as keys: of copies that share a quarter of their hashes, as
after MP3 at 64 kbit/s, all but 1 in 10,000 share a key."""

# Random constants that are the same with every release of numpy.
_RANDOM = np.frombuffer(hashlib.shake_128(b"afa sketch").digest(16 * N_VALUES), "<u8")
_FACTORS = _RANDOM[:N_VALUES].astype(np.uint64) | np.uint64(1)
_OFFSETS = _RANDOM[N_VALUES:].astype(np.uint64)
_CELL_FACTOR = np.uint32(0x9E3779B1)


def sketch_parts(fingerprint: Fingerprint) -> NDArray[np.uint32]:
    """Sketch the parts of a clip, each with what lies where.

    Returns:
        uint32 ``[N_PARTS, N_VALUES]``; ``[0, N_VALUES]`` if a part has less than `FEWEST_HASHES`.
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
    # Multiply-shift: a random order of the hashes for each value, whose first one is kept.
    order = (hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(32)
    least: NDArray[np.uint32] = order.min(axis=0).astype(np.uint32)
    return least


def parts_likeness(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> float:
    """Likeness of the parts that are least alike; 0 if either clip has no sketch."""
    if not len(one) or not len(other):
        return 0.0
    return float(np.mean(one == other, axis=1).min())


def sketch_keys(parts: NDArray[np.uint32]) -> list[str]:
    """Short texts of which a copy of the clip has at least one in common; none without a sketch."""
    if not len(parts):
        return []
    whole = parts.min(axis=0)
    return [f"{i:02x}{int(value):08x}" for i, value in enumerate(whole[:N_KEYS])]
