"""Train the evidence network: true places against others, one cycle, averaged weights."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from models.fingerprint.constellation import measure_distance, measure_level, measure_prominence
from models.fingerprint.evidence import EvidenceNetwork
from models.fingerprint.landmarks import N_FFT, SAMPLE_RATE
from models.fingerprint.support import contrast
from pipelines.training.cycle import Cycle, CyclePlan
from pipelines.training.landmarks.draw import (
    Batch,
    Passage,
    Passages,
    draw_batch,
)

PASSAGES_PER_TRACK = 4
KNOWN = 5.0
"""Support from which a passage counts as known: a chance of one in 3.5 million if normal."""


class LandmarkTrainer:
    """A run in memory: it takes minutes, so only the result is kept."""

    def __init__(self, plan: CyclePlan, passages: Passages) -> None:
        self._plan, self._passages = plan, passages
        torch.manual_seed(plan.seed)
        self._network, self._averaged = EvidenceNetwork(), EvidenceNetwork()
        self._cycle = Cycle(plan, self._network, self._averaged)

    def run(self, told: Callable[[int, float], None]) -> EvidenceNetwork:
        """Train and return the averaged network; `told` gets each step and its loss."""
        for step in range(self._plan.steps):
            loss = measure_loss(self._network, draw_batch(self._passages, self._plan, step))
            self._cycle.step(step, loss)
            told(step + 1, float(loss.detach()))
        return self._averaged.eval()


def weigh(network: EvidenceNetwork, samples: Tensor) -> Tensor:
    """Map clips, float32 ``[B, T]``, to log-odds of landmarks, float32 ``[B, N_BINS, N]``."""
    with torch.no_grad():
        level = measure_level(samples, torch.hann_window(N_FFT))
        prominence, distance = measure_prominence(level), measure_distance(level)
    log_odds: Tensor = network(prominence, distance)
    return log_odds


def measure_loss(network: EvidenceNetwork, batch: Batch) -> Tensor:
    """Binary cross-entropy of the landmarks' log-odds; 0.69 for an ignorant network."""
    row, bins, frames = batch.where
    found = weigh(network, batch.samples)[row, bins, frames]
    return functional.binary_cross_entropy_with_logits(
        found, batch.targets, batch.weights, reduction="sum"
    )


class Score(NamedTuple):
    """How well damaged passages are distinguished from other places in their tracks.

    Attributes:
        median: Median of the passages' support, in standard deviations; NaN without a passage.
        known: Share of passages with more than `KNOWN`; NaN without a passage.
        n_passages: Number of passages with enough to compare.
    """

    median: float
    known: float
    n_passages: int


def score_tracks(network: EvidenceNetwork, passages: Passages, seed: int) -> Score:
    """Score on `PASSAGES_PER_TRACK` damaged passages per track, the same for the same seed."""
    found = []
    for i in range(len(passages)):
        for k in range(PASSAGES_PER_TRACK):
            passage = passages.draw(i, np.random.default_rng([seed, i, k]))
            with torch.inference_mode():
                log_odds = weigh(network, torch.from_numpy(passage.samples)[None])[0]
            found.append(support_of(log_odds.numpy(), passage))
    supports = np.array([s for s in found if s is not None])
    if not len(supports):
        return Score(math.nan, math.nan, 0)
    return Score(float(np.median(supports)), float(np.mean(supports > KNOWN)), len(supports))


def support_of(evidence: NDArray[np.float32], passage: Passage) -> float | None:
    """Compare the evidence at a passage's landmarks with that at other places of its track.

    Args:
        evidence: The passage's log-odds, float32 ``[F, N]``.
        passage: The passage.

    Returns:
        See `models.fingerprint.support`.
    """
    landmarks = passage.landmarks
    frames = np.rint(landmarks.frames).astype(np.int64)
    bins = np.exp2(landmarks.pitches.astype(np.float64)) * (N_FFT / SAMPLE_RATE)
    found = contrast(evidence, frames, bins, passage.offset, passage.speed)
    return None if found is None else found.support
