"""Whether a clip's evidence lies where a track has its landmarks, compared with other places.

Hashes need three landmarks that have all survived. Here each of a passage's 300 or so landmarks
counts on its own, however little: the evidence at all of them is summed, and compared with the sums
at other places nearby in the same track. Music repeats itself, and another track with the same key
and beat fits a clip somewhat everywhere: the other sums already allow for both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import LOWEST_BIN

NEAR_FRAMES = np.arange(-4, 5)
NEAR_SPEEDS = np.array([-0.005, -0.0025, 0.0, 0.0025, 0.005])
"""Search range around the given place, which is based on few landmarks."""
_FAR = np.arange(16, 201, 5)
FAR_FRAMES = np.concatenate([-_FAR[::-1], _FAR])
"""Up to 4.6 s away, but no nearer than .4 s: these represent clips from other places."""
FEWEST_LANDMARKS = 8
FEWEST_PLACES = 10


@dataclass(frozen=True, slots=True)
class Contrast:
    """How far the evidence for a place exceeds that for other places of the same track.

    Attributes:
        excess: Evidence above that of as many landmarks elsewhere, divided by the square root of
            their number.
        deviation: Standard deviation of the same measure at the other places; above 0.
    """

    excess: float
    deviation: float

    @property
    def support(self) -> float:
        """Number of deviations by which the evidence is larger here."""
        return self.excess / self.deviation


def supports(contrasts: Sequence[Contrast | None]) -> list[float | None]:
    """Return the support of places that one clip is compared with; None if there is no contrast.

    A track's own deviation is from a few dozen overlapping places, so half of each variance is the
    mean of all tracks' variances, which is usual for the clip.
    """
    variances = [c.deviation**2 for c in contrasts if c is not None]
    usual = sum(variances) / max(len(variances), 1)
    return [
        None if c is None else c.excess / math.sqrt((c.deviation**2 + usual) / 2) for c in contrasts
    ]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Evidence at a passage's landmarks for some places of the clip.

    Attributes:
        total: float64 ``[J]``.
        counts: int64 ``[J]``, landmarks that the clip covers there.
    """

    total: NDArray[np.float64]
    counts: NDArray[np.int64]


def surroundings(offset: float, speed: float, n_frames: int) -> tuple[float, float]:
    """Return the first and last frame of a track that the comparison of a place needs.

    Args:
        offset: The track's frame at which the clip may begin.
        speed: Playback speed of the clip relative to the track's, minus 1.
        n_frames: Frames of the clip.
    """
    reach = int(FAR_FRAMES[-1]) + int(NEAR_FRAMES[-1])
    return offset - reach, offset + n_frames * (1 + speed + float(NEAR_SPEEDS[-1])) + reach


def contrast(
    evidence: NDArray[np.number],
    frames: NDArray[np.int64],
    bins: NDArray[np.float64],
    offset: float,
    speed: float,
) -> Contrast | None:
    """Compare a place in a track with others.

    Args:
        evidence: The clip's, ``[F, N]``, bins from `LOWEST_BIN` on; its unit does not matter.
        frames: Frames of the track's landmarks, ``[L]``, at least in the place's `surroundings`.
        bins: Their bins, ``[L]``, of the spectrogram, with fractions.
        offset: The track's frame at which the clip may begin.
        speed: Playback speed of the clip relative to the track's, minus 1.

    Returns:
        How the place stands out; None if there is too little to compare.
    """
    if evidence.shape[1] == 0:
        return None
    near = [(_sums(evidence, frames, bins, offset, NEAR_FRAMES, speed + v), v) for v in NEAR_SPEEDS]
    best, v = max(near, key=lambda item: float(item[0].total.max()))
    place = int(best.total.argmax())
    total, count = float(best.total[place]), int(best.counts[place])
    if count < FEWEST_LANDMARKS:
        return None
    others = _sums(
        evidence,
        frames,
        bins,
        offset,
        NEAR_FRAMES[place] + FAR_FRAMES,
        speed + float(v),
    )
    compared = others.counts >= max(FEWEST_LANDMARKS, count / 3)
    if np.count_nonzero(compared) < FEWEST_PLACES:
        return None
    counts = others.counts[compared]
    mean = float(others.total[compared].sum() / counts.sum())
    deviation = float(((others.total[compared] - mean * counts) / np.sqrt(counts)).std())
    if deviation == 0:
        return None
    return Contrast((total - mean * count) / math.sqrt(count), deviation)


def _sums(
    evidence: NDArray[np.number],
    frames: NDArray[np.int64],
    bins: NDArray[np.float64],
    offset: float,
    steps: NDArray[np.int64],
    speed: float,
) -> _Sums:
    """Sum for the places that are ``steps`` frames from ``offset``."""
    n_bins, n_frames = evidence.shape
    row = np.rint(bins * (1 + speed)).astype(np.int64) - LOWEST_BIN
    begin, end = offset + int(steps.min()), offset + int(steps.max()) + n_frames * (1 + speed)
    inside = (row >= 0) & (row < n_bins) & (frames >= begin - 1) & (frames <= end + 1)
    row, frames = row[inside], frames[inside]
    column = np.rint((frames - offset - steps[:, None]) / (1 + speed)).astype(np.int64)
    is_heard = (column >= 0) & (column < n_frames)
    column[~is_heard] = 0
    found = evidence.ravel()[row * n_frames + column] * is_heard
    return _Sums(found.sum(axis=1, dtype=np.float64), is_heard.sum(axis=1))
