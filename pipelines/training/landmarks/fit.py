"""Trains the evidence network: true places against others, one cycle, averaged weights."""

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
from models.fingerprint.landmarks import N_FFT
from pipelines.training.cycle import Cycle, CyclePlan
from pipelines.training.landmarks.draw import (
    FEWEST_LANDMARKS,
    Batch,
    Passage,
    Passages,
    draw_batch,
    places,
)

PASSAGES_PER_TRACK = 4
KNOWN = 5.0
"""Support from which a passage counts as known: one in 3.5 million, were places normal."""

_FAR = np.arange(16, 200, 8)
_FAR_FRAMES = np.concatenate([-_FAR[::-1], _FAR])
"""Other places of the same track, 0.4 to 4.6 s away, that a passage is compared with."""
_FEWEST_PLACES = 5


class LandmarkTrainer:
    """A run in memory: it takes minutes, so nothing of it is kept but the result."""

    def __init__(self, plan: CyclePlan, passages: Passages) -> None:
        self._plan, self._passages = plan, passages
        torch.manual_seed(plan.seed)
        self._network, self._averaged = EvidenceNetwork(), EvidenceNetwork()
        self._cycle = Cycle(plan, self._network, self._averaged)

    def run(self, told: Callable[[int, float], None]) -> EvidenceNetwork:
        """Train; `told` is called with each step and its loss. Gives the averaged network."""
        for step in range(self._plan.steps):
            loss = measure_loss(self._network, draw_batch(self._passages, self._plan, step))
            self._cycle.step(step, loss)
            told(step + 1, float(loss.detach()))
        return self._averaged.eval()


def weigh(network: EvidenceNetwork, samples: Tensor) -> Tensor:
    """Map clips, float32 ``[B, T]``, to log odds of landmarks, float32 ``[B, N_BINS, N]``."""
    with torch.no_grad():
        level = measure_level(samples, torch.hann_window(N_FFT))
        prominence, distance = measure_prominence(level), measure_distance(level)
    log_odds: Tensor = network(prominence, distance)
    return log_odds


def measure_loss(network: EvidenceNetwork, batch: Batch) -> Tensor:
    """Binary cross-entropy of what is said of landmarks; 0.69 of a network that knows nothing."""
    row, bins, frames = batch.where
    found = weigh(network, batch.samples)[row, bins, frames]
    return functional.binary_cross_entropy_with_logits(
        found, batch.targets, batch.weights, reduction="sum"
    )


class Score(NamedTuple):
    """How well damaged passages are told from others of their tracks.

    Attributes:
        median: Of the passages' support, in standard deviations; NaN without a passage.
        known: Share of passages with more than `KNOWN`; NaN without a passage.
        n_passages: Those that have enough to compare.
    """

    median: float
    known: float
    n_passages: int


def score_tracks(network: EvidenceNetwork, passages: Passages, seed: int) -> Score:
    """Score on `PASSAGES_PER_TRACK` damaged passages of each track, the same for the same seed."""
    found = []
    for i in range(len(passages)):
        for k in range(PASSAGES_PER_TRACK):
            passage = passages.draw(i, np.random.default_rng([seed, i, k]))
            with torch.inference_mode():
                log_odds = weigh(network, torch.from_numpy(passage.samples)[None])[0]
            found.append(support(log_odds.numpy(), passage))
    supports = np.array([s for s in found if s is not None])
    if not len(supports):
        return Score(math.nan, math.nan, 0)
    return Score(float(np.median(supports)), float(np.mean(supports > KNOWN)), len(supports))


def support(evidence: NDArray[np.float32], passage: Passage) -> float | None:
    """Compare the evidence at a passage's landmarks with that at other places of its track.

    Args:
        evidence: Log odds, float32 ``[F, N]``.
        passage: Whose they are.

    Returns:
        By how many standard deviations of the other places there is more of it; None where there
        is too little to compare.
    """

    def at(shift: int) -> NDArray[np.float32]:
        where = places(passage.landmarks, passage.offset + shift, passage.speed, evidence.shape[1])
        return evidence[where]

    here = at(0)
    others = [e for e in map(at, _FAR_FRAMES.tolist()) if len(e) >= FEWEST_LANDMARKS]
    if len(here) < FEWEST_LANDMARKS or len(others) < _FEWEST_PLACES:
        return None
    mean = float(np.mean([other.mean() for other in others]))

    def surplus(found: NDArray[np.float32]) -> float:
        return float((found - mean).sum()) / math.sqrt(len(found))

    deviation = float(np.std([surplus(other) for other in others]))
    return surplus(here) / deviation if deviation else None
