"""Vectors distributed like embeddings of music: around many centres on a curved, noisy surface.

Isotropic vectors would be the wrong test: all neighbours are about equally far, so that no index
can distinguish them and no answer matters.
"""

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

DIMENSION = 768
SURFACE = 24
"""Dimensions of the surface. 259 tracks of game music have an intrinsic dimension (two-nearest-
neighbour estimate) of about 3 in musicnn's space; 300 of these vectors have 15, which is harder."""

N_FEATURES = 256
N_CENTRES = 20_000
SPREAD = 0.6
NOISE = 0.02


class Manifold:
    """Draws unit vectors; the same seed gives the same."""

    def __init__(self, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        bend = 1.5 / np.sqrt(SURFACE)
        self._into = (bend * random.standard_normal((SURFACE, N_FEATURES))).astype(np.float32)
        self._shift = random.standard_normal(N_FEATURES).astype(np.float32)
        out = random.standard_normal((N_FEATURES, DIMENSION)) / np.sqrt(N_FEATURES)
        self._out = out.astype(np.float32)
        self._mean = (0.6 * random.standard_normal(DIMENSION)).astype(np.float32)
        self._centres = random.standard_normal((N_CENTRES, SURFACE)).astype(np.float32)

    def draw(self, n: int, seed: int) -> Vectors:
        """Draw ``n`` vectors, ``[n, 768]``."""
        random = np.random.default_rng(seed)
        at = self._centres[random.integers(0, N_CENTRES, n)]
        at = at + SPREAD * random.standard_normal((n, SURFACE), dtype=np.float32)
        vectors = np.tanh(at @ self._into + self._shift) @ self._out + self._mean
        vectors += NOISE * random.standard_normal((n, DIMENSION), dtype=np.float32)
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit
