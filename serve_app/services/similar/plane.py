"""Projects vectors onto a plane, so that a person can see which are close."""

import numpy as np
from numpy.typing import NDArray


def on_a_plane(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Project vectors onto the two directions in which they differ most.

    Args:
        vectors: float32 ``[N, D]``, N ≥ 1.

    Returns:
        Points ``[N, 2]`` within ±1, the same for the same vectors; and how much of the vectors'
        variance the plane shows, 0 to 1. Equal vectors are all at 0, which shows nothing.

    References:
        K. Pearson, "On lines and planes of closest fit to systems of points in space" (1901).
    """
    centred = np.asarray(vectors, np.float64) - vectors.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    axes = directions[:, -2:][:, ::-1]
    # An axis may point either way; a fixed choice keeps a map the same.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), [0, 1]])
    points = centred @ axes
    farthest, total = np.abs(points).max(), variances.sum()
    if farthest < 1e-6:
        return np.zeros_like(points), 0.0
    return points / farthest, float(variances[-2:].sum() / total)
