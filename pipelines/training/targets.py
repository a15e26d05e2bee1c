"""The network's targets for a segment."""

import numpy as np
from numpy.typing import NDArray

from models.rhythm.network import FRAME_RATE, TEMPI, TEMPO_STRIDE

_SPREAD = 0.6
"""Width of the tempo target in classes."""


def pulse_target(
    times_s: NDArray[np.float64], n_frames: int, neighbour: float
) -> NDArray[np.float32]:
    """Mark events: 1 on the nearest frame, `neighbour` on those next to it, float32 ``[N]``."""
    target = np.zeros(n_frames, dtype=np.float32)
    frames = np.round(times_s * FRAME_RATE).astype(np.int64)
    for offset, value in ((-1, neighbour), (1, neighbour), (0, 1.0)):
        near = frames + offset
        near = near[(near >= 0) & (near < n_frames)]
        target[near] = np.maximum(target[near], value)
    return target


def tempo_target(beats_s: NDArray[np.float64], n_frames: int) -> NDArray[np.float32]:
    """Return the tempo's distribution over `TEMPI` second by second.

    Args:
        beats_s: Ascending; they may begin before and end after the segment.
        n_frames: Frames of the segment.

    Returns:
        float32 ``[⌈N / 50⌉, 64]``; rows sum to 1, or are 0 if no beat is near.
    """
    rows = -(-n_frames // TEMPO_STRIDE)
    target = np.zeros((rows, len(TEMPI)), dtype=np.float32)
    if len(beats_s) < 2:
        return target
    centres = (np.arange(rows) + 0.5) * TEMPO_STRIDE / FRAME_RATE
    after = np.searchsorted(beats_s, centres)
    inside = (after > 0) & (after < len(beats_s))
    first = np.clip(after[inside] - 2, 0, None)
    last = np.clip(after[inside] + 1, None, len(beats_s) - 1)
    bpm = 60.0 * (last - first) / (beats_s[last] - beats_s[first])
    classes = np.interp(np.log(bpm), np.log(TEMPI), np.arange(len(TEMPI)))
    weights = np.exp(-0.5 * ((np.arange(len(TEMPI)) - classes[:, None]) / _SPREAD) ** 2)
    target[inside] = weights / weights.sum(axis=1, keepdims=True)
    return target
