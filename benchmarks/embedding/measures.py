"""Measures of vectors: which are nearest, how groups hold together, how the space is filled."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]
Labels = NDArray[np.str_]

_DRAWS = 1000
_NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the middle 95 % of its bootstrap."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.2f}, {self.high:.2f}]"


def interval(values: NDArray[np.float64]) -> Interval:
    """Return the mean of one value per query, with its interval over queries."""
    rng = np.random.default_rng(0)
    draws = rng.choice(values, (_DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high), len(values))


def unit(vectors: Vectors) -> Vectors:
    """Scale rows to norm 1; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: Vectors = vectors / np.maximum(norms, 1e-12)
    return rows


def likeness(vectors: Vectors) -> Vectors:
    """Return the cosines ``[N, N]`` of all pairs."""
    rows = unit(vectors)
    cosines: Vectors = rows @ rows.T
    return cosines


def found_first(queries: Vectors, tracks: Vectors) -> NDArray[np.float64]:
    """Return for each query whether the track with its number is the nearest of all, 1 or 0."""
    nearest = (unit(queries) @ unit(tracks).T).argmax(axis=1)
    hits: Vectors = (nearest == np.arange(len(queries))).astype(np.float64)
    return hits


def neighbours_agree(vectors: Vectors, labels: Labels) -> NDArray[np.float64]:
    """Return whether the nearest other vector has the same label, 1 or 0."""
    return _of_each(vectors, labels, lambda same: float(same[0]))


def average_precision(vectors: Vectors, labels: Labels) -> NDArray[np.float64]:
    """Return the average precision of each vector as a query for its label among the others."""

    def precision(same: NDArray[np.bool_]) -> float:
        ranks = np.flatnonzero(same) + 1
        return float(np.mean(np.arange(1, len(ranks) + 1) / ranks))

    return _of_each(vectors, labels, precision)


def _of_each(
    vectors: Vectors, labels: Labels, rate: Callable[[NDArray[np.bool_]], float]
) -> NDArray[np.float64]:
    """Rate the ranking of every vector whose label occurs again."""
    near = likeness(vectors)
    np.fill_diagonal(near, -np.inf)
    values = []
    for row, label in zip(near, labels, strict=True):
        same = (labels == label)[np.argsort(-row, kind="stable")[:-1]]
        if same.any():
            values.append(rate(same))
    return np.array(values)


def effective_dimension(vectors: Vectors) -> float:
    """Return the participation ratio of the variances: 1 if all lie on a line."""
    variances = np.linalg.eigvalsh(np.cov(unit(vectors).T))
    return float(variances.sum() ** 2 / np.square(variances).sum())


def hubness(vectors: Vectors) -> float:
    """Return the skewness of how often a vector is among the ten nearest of others.

    All equally often gives 0.

    References:
        Radovanović, Nanopoulos and Ivanović, Hubs in space (JMLR 2010).
    """
    near = likeness(vectors)
    np.fill_diagonal(near, -np.inf)
    nearest = np.argsort(-near, axis=1)[:, :_NEIGHBOURS]
    counts = np.bincount(nearest.ravel(), minlength=len(vectors)).astype(np.float64)
    deviation = counts - counts.mean()
    spread = float(np.mean(deviation**2))
    return float(np.mean(deviation**3)) / spread**1.5 if spread else 0.0
