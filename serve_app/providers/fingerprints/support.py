"""Whether a clip's evidence lies where a track has its landmarks, against places where it does not.

Hashes need three landmarks that all survived. Here each of some 300 of a passage counts for itself,
if ever so little: the evidence at all of them is summed, and compared with the sums at other places
of the same track nearby. Music repeats itself, and another track with the same key and beat fits a
clip somewhat everywhere: both are in those other sums already.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import LOWEST_BIN
from serve_app.providers.fingerprints.kept_landmarks import KeptLandmarks
from serve_app.providers.fingerprints.votes import Candidate

NEAR_FRAMES = np.arange(-4, 5)
NEAR_SPEEDS = np.array([-0.005, -0.0025, 0.0, 0.0025, 0.005])
"""Where the best place is sought around the votes', which are from few landmarks."""
_FAR = np.arange(16, 201, 5)
FAR_FRAMES = np.concatenate([-_FAR[::-1], _FAR])
"""Up to 4.6 s away, but no nearer than .4 s: what a clip of another place would bring."""
FEWEST_LANDMARKS = 8
FEWEST_PLACES = 10


@dataclass(frozen=True, slots=True)
class _Sums:
    """Evidence at a passage's landmarks for some places of the clip.

    Attributes:
        total: float64 ``[J]``.
        counts: int64 ``[J]``, landmarks that the clip covers there.
    """

    total: NDArray[np.float64]
    counts: NDArray[np.int64]


def support(
    evidence: NDArray[np.int8], landmarks: KeptLandmarks, candidate: Candidate
) -> float | None:
    """Compare a candidate's place with others.

    Args:
        evidence: int8 ``[F, N]`` of the clip.
        landmarks: Of the candidate's segment.
        candidate: Where the clip may lie.

    Returns:
        By how many standard deviations of the other places the evidence is larger here; None where
        there is too little to compare.
    """
    n_frames = evidence.shape[1]
    if n_frames == 0:
        return None
    reach = int(FAR_FRAMES[-1]) + int(NEAR_FRAMES[-1])
    speed_up = 1 + candidate.speed + float(NEAR_SPEEDS[-1])
    frames, bins = landmarks.around(
        candidate.offset - reach, candidate.offset + n_frames * speed_up + reach
    )
    near = [
        (_sums(evidence, frames, bins, candidate.offset + NEAR_FRAMES, candidate.speed + v), v)
        for v in NEAR_SPEEDS
    ]
    best, v = max(near, key=lambda item: float(item[0].total.max()))
    place = int(best.total.argmax())
    total, count = float(best.total[place]), int(best.counts[place])
    if count < FEWEST_LANDMARKS:
        return None
    others = _sums(
        evidence,
        frames,
        bins,
        candidate.offset + NEAR_FRAMES[place] + FAR_FRAMES,
        candidate.speed + float(v),
    )
    compared = others.counts >= max(FEWEST_LANDMARKS, count / 3)
    if np.count_nonzero(compared) < FEWEST_PLACES:
        return None
    counts = others.counts[compared]
    mean = float(others.total[compared].sum() / counts.sum())
    deviation = float(((others.total[compared] - mean * counts) / np.sqrt(counts)).std())
    if deviation == 0:
        return None
    return (total - mean * count) / math.sqrt(count) / deviation


def _sums(
    evidence: NDArray[np.int8],
    frames: NDArray[np.int64],
    bins: NDArray[np.float64],
    offsets: NDArray[np.floating],
    speed: float,
) -> _Sums:
    n_bins, n_frames = evidence.shape
    row = np.rint(bins * (1 + speed)).astype(np.int64) - LOWEST_BIN
    inside = (row >= 0) & (row < n_bins)
    row, frames = row[inside], frames[inside]
    column = np.rint((frames - offsets[:, None]) / (1 + speed)).astype(np.int64)
    is_heard = (column >= 0) & (column < n_frames)
    found = evidence[row, np.clip(column, 0, n_frames - 1)] * is_heard
    return _Sums(found.sum(axis=1, dtype=np.float64), is_heard.sum(axis=1))
