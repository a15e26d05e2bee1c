"""Key of a track, and its chroma."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.key import (
    HOP_LENGTH,
    SAMPLE_RATE,
    UNKNOWN,
    WIN_LENGTH,
    Hpcp,
    Key,
    choose_key,
    profile_correlations,
)
from pipelines.framed import FrameGrid

GRID_FRAMES = 320
"""29.8 s, the shape of every forward."""
CHROMA_RATE = SAMPLE_RATE / HOP_LENGTH
"""Chroma frames a second."""

_LEAST_CORRELATION = 0.3
_LEAST_CONTRAST = 0.2
"""Standard deviation over mean of the profile: noise has .09-.20, music .32 and more."""


class ChromaModel:
    """Harmonic pitch class profiles as a windowed model; output ``chroma [B, 320, 12]``."""

    def __init__(self, model_id: str, device: torch.device) -> None:
        self.model_id = model_id
        self.grid = FrameGrid(
            SAMPLE_RATE, HOP_LENGTH, GRID_FRAMES, overhang=WIN_LENGTH - HOP_LENGTH
        )
        self.spec = self.grid.spec
        self._device = device
        self._hpcp = Hpcp().to(device)

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        return {"chroma": self._hpcp(windows.to(self._device))}


def estimate_key(chroma: NDArray[np.float32]) -> Key:
    """Find the key of a stretch of music.

    Args:
        chroma: float32 ``[N, 12]`` from C.

    Returns:
        The key; silence and sound without tonality are `UNKNOWN`.
    """
    profile = chroma.sum(axis=0, dtype=np.float64)
    scores = profile_correlations(profile)
    best, second = np.sort(scores)[[-1, -2]]
    if best < _LEAST_CORRELATION or profile.std() < _LEAST_CONTRAST * profile.mean():
        return UNKNOWN
    return choose_key(scores, float(np.clip(best * min(1.0, (best - second) / 0.1), 0.0, 1.0)))
