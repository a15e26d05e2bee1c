"""Compute the projection from the networks' outputs for much music.

Nothing is labelled: all that is known is which stretches are from the same track. Directions in
which stretches of one track differ are turned down, those in which they agree are turned up
(within-class covariance normalisation). This is done for each block of the evidence separately, the
blocks then get equal weight, and the 768 directions in which music varies most are kept.

References:
    Hatch, Kajarekar and Stolcke, Within-class covariance normalization for SVM-based speaker
    recognition (Interspeech 2006).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.checkpoints.weight_files import write_tensors
from pipelines.analysis.records import EMBEDDING_DIMENSION

Values = NDArray[np.float64]

_LEAST_DEVIATION = 0.01
"""Relative to the largest in its block: what hardly varied in training means nothing if it does."""


def fit(
    tracks: NDArray[np.float32], blocks: Sequence[NDArray[np.int64]], ridge: float
) -> dict[str, Tensor]:
    """Learn the projection.

    Args:
        tracks: Evidence ``[T, P, N]`` of P ≥ 2 stretches of each track.
        blocks: Indices into the evidence; values in none of them are left out.
        ridge: See `EmbeddingPlan`.

    Returns:
        The tensors that `models.projection.Projection` takes.
    """
    values = tracks.astype(np.float64)
    mean, deviation = values.mean(axis=(0, 1)), values.std(axis=(0, 1))
    scale = np.zeros_like(mean)
    whitening = np.zeros((len(mean), len(mean)))
    for block in blocks:
        floor = _LEAST_DEVIATION * deviation[block].max()
        scale[block] = 1 / np.maximum(deviation[block], floor)
        standard = (values[..., block] - mean[block]) * scale[block]
        whitening[np.ix_(block, block)] = _whitening(standard, ridge)
    white = ((values - mean) * scale).reshape(-1, len(mean)) @ whitening
    _, principal = np.linalg.eigh(white.T @ white)  # by ascending variance
    matrix = principal[:, : -EMBEDDING_DIMENSION - 1 : -1].T @ whitening
    return {
        "mean": torch.from_numpy(mean).float(),
        "scale": torch.from_numpy(scale).float(),
        "matrix": torch.from_numpy(matrix / np.abs(matrix).max()).half(),
    }


def _whitening(standard: Values, ridge: float) -> Values:
    """Return the matrix that makes scatter within tracks isotropic and mean energy 1."""
    n_tracks, n_parts, n = standard.shape
    inside = (standard - standard.mean(axis=1, keepdims=True)).reshape(-1, n)
    within = inside.T @ inside / (n_tracks * (n_parts - 1))
    within += ridge * np.trace(within) / n * np.eye(n)
    variance, directions = np.linalg.eigh(within)
    whitening = directions / np.sqrt(variance) @ directions.T
    energy = np.square(standard.reshape(-1, n) @ whitening).sum(axis=1).mean()
    scaled: Values = whitening / np.sqrt(energy)
    return scaled


def export(tensors: dict[str, Tensor], target: Path, details: dict[str, str]) -> None:
    """Write the projection; the file appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    write_tensors(tensors, part, details)
    part.replace(target)
