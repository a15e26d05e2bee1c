"""A short sketch of a fingerprint, by which a re-encoded copy of the same clip is recognised.

Two sketches agree in about that share of their values in which the clips share hashes (MinHash).
A copy through another codec keeps a good part of them, another recording practically none.

References:
    Broder, "On the resemblance and containment of documents", 1997.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.hashes import index_hashes
from models.fingerprint.landmarks import Fingerprint

N_VALUES = 64
N_KEYS = 32
"""The first values serve as keys: of copies that share a quarter of their hashes, as after MP3 at
64 kbit/s, all but 1 in 10,000 share a key."""
SAME_CLIP = 0.09
"""Share of equal values, 6 of 64, from which two clips are the same. Clips of different tracks had
at most 3 (361,000 pairs); MP3 at 128 kbit/s keeps 20 or more, at 64 kbit/s 15 in the median."""
FEWEST_HASHES = 24
"""With less to compare (silence, a lone tone) there is no sketch."""

# Random constants that are the same with every release of numpy.
_RANDOM = np.frombuffer(hashlib.shake_128(b"afa sketch").digest(16 * N_VALUES), "<u8")
_FACTORS = _RANDOM[:N_VALUES].astype(np.uint64) | np.uint64(1)
_OFFSETS = _RANDOM[N_VALUES:].astype(np.uint64)


def sketch(fingerprint: Fingerprint) -> NDArray[np.uint32]:
    """Sketch a clip.

    Returns:
        uint32 ``[N_VALUES]``, the same on every machine; empty for less than `FEWEST_HASHES`.
    """
    hashes = np.unique(index_hashes(fingerprint)[0]).astype(np.uint64)
    if len(hashes) < FEWEST_HASHES:
        return np.zeros(0, np.uint32)
    # Multiply-shift: a random order of the hashes for each value, whose first one is kept.
    order = (hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(32)
    least: NDArray[np.uint32] = order.min(axis=0).astype(np.uint32)
    return least


def likeness(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> float:
    """Share of equal values, 0 to 1; 0 if either is empty."""
    if len(one) != N_VALUES or len(other) != N_VALUES:
        return 0.0
    return float(np.mean(one == other))


def sketch_keys(values: NDArray[np.uint32]) -> list[str]:
    """Short texts of which a copy of the clip has at least one in common; none without a sketch."""
    return [f"{i:02x}{int(value):08x}" for i, value in enumerate(values[:N_KEYS])]
