"""Augment features with what real recordings have: detuning, equalisers, noise, dynamics, gaps.

It works on whole batches of linear bands, before they are compressed.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.rhythm.network import N_BANDS

_NODES = 6
_COMPRESSION = 10.0


def augment(bands: Tensor, heard: Tensor, rng: np.random.Generator, mixup: float) -> Tensor:
    """Distort a batch and compress it.

    Args:
        bands: float32 ``[B, N, 83]``, linear, level 1; overwritten.
        heard: float32 ``[B, N]``, 1 inside the clip.
        rng: Draws the distortions.
        mixup: Share of the segments that get another one of the batch mixed in faintly, which does
            not affect the labels.

    Returns:
        float32 ``[B, N, 83]``: features as from `BeatFeatures`; 0 outside the clip.
    """
    b = len(bands)
    through = _drawn(rng, b, mixup) * rng.uniform(0.03, 0.15, b)
    if through.any():
        bands = bands + _column(through) * bands.roll(1, dims=0)
    for row in np.flatnonzero(_drawn(rng, b, 0.5)):
        bands[row] = _shifted(bands[row], int(rng.integers(-4, 5)))
    curve = np.stack(
        [
            np.interp(np.arange(N_BANDS), np.linspace(0, N_BANDS - 1, _NODES), nodes)
            for nodes in rng.normal(0, 0.7, (b, _NODES))
        ]
    )
    tilt = curve * _drawn(rng, b, 0.6)[:, None] + rng.normal(0, 0.3, (b, 1))
    bands = bands * torch.from_numpy(np.exp(tilt)).float()[:, None]
    noisy = _drawn(rng, b, 0.3) * np.exp(rng.uniform(-6, -1.5, b))
    if noisy.any():
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        noise = torch.rand(bands.shape, generator=generator)
        bands = bands + _column(noisy) * 2 * noise
    for row in np.flatnonzero(_drawn(rng, b, 0.3)):
        bands[row] = bands[row] ** float(rng.uniform(0.75, 1.25))
    features = torch.log1p(_COMPRESSION * bands).mul_(0.5)
    _cut(features, rng)
    return features * heard[..., None]


def _drawn(
    rng: np.random.Generator, n: int, share: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return (rng.random(n) < share).astype(np.float64)


def _column(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values).float()[:, None, None]


def _shifted(bands: Tensor, by: int) -> Tensor:
    """Move ``[N, 83]`` up by a number of bands, each nearly a semitone."""
    if by == 0:
        return bands
    moved = bands.roll(by, dims=1)
    if by > 0:
        moved[:, :by] = moved[:, by : by + 1] * 0.3
    else:
        moved[:, by:] = moved[:, by - 1 : by] * 0.3
    return moved


def _cut(features: Tensor, rng: np.random.Generator) -> None:
    """Silence a few bands, the lowest, the highest or a moment, at random."""
    for row in features:
        what = rng.random(4)
        if what[0] < 0.25:
            first = int(rng.integers(0, N_BANDS - 10))
            row[:, first : first + int(rng.integers(4, 16))] = 0
        if what[1] < 0.15:
            row[:, : int(rng.integers(5, 25))] = 0
        if what[2] < 0.15:
            row[:, -int(rng.integers(5, 35)) :] = 0
        if what[3] < 0.15:
            first = int(rng.integers(0, len(row) - 60))
            row[first : first + int(rng.integers(20, 60))] = 0
