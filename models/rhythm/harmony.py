"""When the harmony changes: on beats more than elsewhere, and on downbeats most."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_SPREAD = 0.05
"""Added to the spread of changes, so that drums without harmony do not count (their spread is
.01-.07, that of music .1-.2)."""


def harmonic_change(
    chroma: NDArray[np.float32], times_s: NDArray[np.float64], beats_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much the harmony of each beat differs from that of the previous beat.

    Args:
        chroma: float32 ``[N, 12]``.
        times_s: Centres of the chroma's frames, ascending, ``[N]``.
        beats_s: Ascending, ``[beats]`` with at least two.

    Returns:
        float64 ``[beats]``, 0 (the same, or silence) to 1; 0 for the first beat.
    """
    means = _means(chroma, times_s, beats_s)
    norms = np.linalg.norm(means, axis=1)
    cosine = (means[1:] * means[:-1]).sum(axis=1) / np.maximum(norms[1:] * norms[:-1], 1e-9)
    heard = (norms[1:] > 0) & (norms[:-1] > 0)
    return np.concatenate([[0.0], np.where(heard, np.maximum(1.0 - cosine, 0.0), 0.0)])


def chord_change(
    chords: NDArray[np.float64], times_s: NDArray[np.float64], beats_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How probable it is that each beat has a different chord from the previous beat.

    Args:
        chords: Probabilities, float64 ``[N, K]``.
        times_s: Centres of their frames, ascending, ``[N]``.
        beats_s: Ascending, ``[beats]`` with at least two.

    Returns:
        float64 ``[beats]``, 0 to 1; 0 for the first beat.
    """
    return np.concatenate([[0.0], _moved(_means(chords, times_s, beats_s))])


def chord_novelty(
    chords: NDArray[np.float64], times_s: NDArray[np.float64], at_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How probable it is that a chord begins, between one frame and the next.

    Args:
        chords: Probabilities, float64 ``[N, K]``.
        times_s: Centres of their frames, ascending, ``[N]``.
        at_s: Times ``[M]`` to evaluate.

    Returns:
        float64 ``[M]``, 0 to 1; 0 everywhere if there is only one frame.
    """
    if len(chords) < 2:
        return np.zeros(len(at_s))
    return np.asarray(np.interp(at_s, (times_s[1:] + times_s[:-1]) / 2, _moved(chords)))


def standardised(change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Deviations from a track's mean change in units of its spread, -2 to 3."""
    deviations = (change - change.mean()) / (change.std() + _LEAST_SPREAD)
    return np.asarray(np.clip(deviations, -2.0, 3.0))


def _moved(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total variation between each row of ``[N, K]`` and the next, ``[N - 1]``."""
    return np.asarray(0.5 * np.abs(np.diff(probabilities, axis=0)).sum(axis=1))


def _means(
    rows: NDArray[Any], times_s: NDArray[np.float64], beats_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean of the rows ``[N, K]`` from each beat to the next, ``[beats, K]``."""
    edges = np.append(beats_s, 2 * beats_s[-1] - beats_s[-2])
    index = np.clip(np.searchsorted(times_s, edges), 0, len(rows))
    starts = np.minimum(index[:-1], len(rows) - 1)
    stops = np.maximum(index[1:], starts + 1)
    first = np.zeros((1, rows.shape[1]))
    sums = np.concatenate([first, rows.cumsum(axis=0, dtype=np.float64)])
    return np.asarray((sums[stops] - sums[starts]) / (stops - starts)[:, None])
