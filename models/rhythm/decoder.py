"""Bar-pointer decoding of beat activations, exact and without a loop over frames or states.

A bar-pointer path moves through a beat at constant speed and may change tempo only at the next
beat. So a whole beat period is one step: the score of a period is a difference of prefix sums, and
the Viterbi recursion reaches back at least the shortest period. Blocks of that length are therefore
solved at once, over all frames in the block and all tempi.

A change of tempo costs in proportion to |ln(tempo ratio)|. The best change into every tempo from
every other is therefore two running maxima, one from the fast end and one from the slow.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

FRAME_RATE = 100
"""Activation frames per second that the decoder expects by default."""

_FLOOR = 1e-4
_STRETCH_BLOCKS = 64
"""Blocks whose evidence is computed at a time: that of an hour would take 250 MB."""


@dataclass(frozen=True, slots=True)
class BeatSpace:
    """The bar pointer's tempi and probabilities.

    Attributes:
        min_bpm: Slowest tempo.
        max_bpm: Fastest tempo.
        tempo_inertia: Weight of |ln(tempo ratio)| from beat to beat; 100 is Krebs et al.'s.
        beat_share: The first 1/16 of a beat period is "on the beat" (Böck et al.'s λ = 16).
        frame_rate: Activation frames per second. A period is a whole number of frames.
    """

    min_bpm: float = 55.0
    max_bpm: float = 215.0
    tempo_inertia: float = 100.0
    beat_share: int = 16
    frame_rate: int = FRAME_RATE

    @property
    def periods(self) -> NDArray[np.int64]:
        """Beat periods in frames, ascending, ``[K]``."""
        shortest = round(60.0 * self.frame_rate / self.max_bpm)
        longest = round(60.0 * self.frame_rate / self.min_bpm)
        return np.arange(shortest, max(shortest, longest) + 1)


def upsample(activation: NDArray[np.float32], factor: int = 2) -> NDArray[np.float32]:
    """Interpolate ``[..., N]`` linearly to ``[..., N · factor]``; old frames keep their times."""
    following = np.concatenate([activation[..., 1:], activation[..., -1:]], axis=-1)
    weights = np.arange(factor, dtype=np.float32) / factor
    fine = activation[..., None] * (1.0 - weights) + following[..., None] * weights
    return np.asarray(fine.reshape(*activation.shape[:-1], -1), dtype=np.float32)


class _Changes:
    """Log-probabilities of a beat period given the previous one: -λ |ln(ratio)|, normalised."""

    def __init__(self, space: BeatSpace) -> None:
        self._cost = space.tempo_inertia * np.log(space.periods)
        into = -np.abs(self._cost[:, None] - self._cost)
        self._leave = -np.log(np.exp(into).sum(axis=0))
        # Repeated for all columns of a block, so that NumPy adds them in one loop.
        self._costs = np.repeat(self._cost[:, None], space.periods[0], axis=1)
        self._rise = self._leave[:, None] + self._costs
        self._fall = self._leave[:, None] - self._costs

    def best(self, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score the best change into every period: ``[K, M]`` after a beat to before the next."""
        m = arrivals.shape[1]
        costs = self._costs[:, :m]
        shorter: NDArray[np.float64] = arrivals + self._rise[:, :m]
        longer = arrivals + self._fall[:, :m]
        np.maximum.accumulate(shorter, axis=0, out=shorter)
        np.maximum.accumulate(longer[::-1], axis=0, out=longer[::-1])
        shorter -= costs
        longer += costs
        np.maximum(shorter, longer, out=shorter)
        return shorter

    def into(self, period: int) -> NDArray[np.float64]:
        """Log-probability of one period given each of the others, ``[K]``."""
        return np.asarray(self._leave - np.abs(self._cost - self._cost[period]))


def decode_beats(
    activation: NDArray[np.float32], space: BeatSpace | None = None
) -> list[NDArray[np.int64]]:
    """Find the most likely beats of every row.

    Args:
        activation: float32 ``[B, N]``, probability of a beat (of any kind) in each frame.
        space: Tempi and transition probabilities.

    Returns:
        For every row the beats' frames, ascending; N = 0 gives none. Silence also gives a grid, as
        beats are not judged here.

    References:
        Krebs, Böck & Widmer, "An efficient state-space model for joint tempo and meter tracking",
        ISMIR 2015; Böck, Krebs & Widmer, ISMIR 2014.
    """
    space = space or BeatSpace()
    return [_decode_row(row, space) for row in activation]


def grid_likelihood(activation: NDArray[np.float32], space: BeatSpace) -> float:
    """Log-likelihood of the best beats in a range of tempi, per second with any activation.

    Args:
        activation: float32 ``[N]``, N ≥ 1, as in `decode_beats`.
        space: Tempi and transition probabilities.
    """
    best = _forward(_Evidence(activation, space), space, len(activation))
    return float(best.max()) * space.frame_rate / max(1, int(np.count_nonzero(activation)))


def _decode_row(activation: NDArray[np.float32], space: BeatSpace) -> NDArray[np.int64]:
    n = len(activation)
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    arrivals = np.zeros((len(space.periods), int(space.periods[-1]) + n), dtype=np.float32)
    best = _forward(_Evidence(activation, space), space, n, arrivals)
    return _backtrack(best, arrivals, space, n)


class _Evidence:
    """Log-likelihood of beat periods, in two parts: by where they begin and by where they end.

    Before the start and after the end there are as many frames without evidence as the longest
    period has, so that a path may begin and end anywhere in a period. Frames of probability 0
    belong to a pause and are no evidence either.
    """

    def __init__(self, activation: NDArray[np.float32], space: BeatSpace) -> None:
        longest = int(space.periods[-1])
        p = np.clip(activation.astype(np.float64), _FLOOR, 1.0 - _FLOOR)
        is_told = activation > 0.0
        pad = (longest + 1, longest)
        on = np.pad(np.log(p) * is_told, pad).cumsum()
        off = np.pad(np.log((1.0 - p) / (space.beat_share - 1)) * is_told, pad).cumsum()
        self.end = off
        # This many frames are on the beat; ``off`` is summed from the frames after them.
        lengths = -(-space.periods // space.beat_share)
        lengths, self._length_of = np.unique(lengths, return_inverse=True)
        n = len(on) - longest
        self._begin = np.stack([(on - off)[c : c + n] - on[:n] for c in lengths])

    def begin(self, first: int, count: int) -> NDArray[np.float64]:
        """Part of period k that begins in the padded frame ``first`` + i: ``[K, count]``."""
        return self._begin[:, first : first + count].take(self._length_of, axis=0)


def _forward(
    evidence: _Evidence,
    space: BeatSpace,
    n: int,
    arrivals: NDArray[np.float32] | None = None,
) -> NDArray[np.float64]:
    """Run the recursion over frames of the padded activation.

    Args:
        evidence: The activation's evidence.
        space: The tempi.
        n: Frames of the activation.
        arrivals: ``[K, longest + N]``, to be filled with the score of the best path that closes
            period k with a beat in that frame, relative to the block's best.

    Returns:
        ``[K, longest]``: score of the best path whose first beat at or after the end lies in that
        frame and closes that period.
    """
    periods = space.periods
    k, shortest, longest = len(periods), int(periods[0]), int(periods[-1])
    changes = _Changes(space)
    end, stretch = longest + n, _STRETCH_BLOCKS * shortest
    # recent[k, i]: best score of a path with a beat at the i-th remembered frame, after which
    # period k begins. A path may begin anywhere before the track.
    recent = np.zeros((k, longest + stretch))
    recent[:, :longest] = evidence.begin(0, longest)
    # begun[k, i]: the same one period before the frame longest + i. Each period is a frame longer
    # than the one before it, so the rows are those of ``recent``, each shifted by one frame more.
    by_period, by_frame = recent.strides
    strides = by_period - by_frame, by_frame
    begun = as_strided(recent[:, longest - shortest :], (k, stretch), strides, writeable=False)
    for first in range(longest, end, stretch):
        count = min(stretch, end - first)
        closed = evidence.end[first : first + count]
        recent[:, longest : longest + count] = evidence.begin(first, count) + closed
        for start in range(0, count, shortest):
            stop = min(start + shortest, count)
            recent[:, longest + start : longest + stop] += changes.best(begun[:, start:stop])
        if arrivals is not None:
            arrivals[:, first : first + count] = begun[:, :count] - begun[:, :count].max(axis=0)
        recent[:, :longest] = recent[:, count : count + longest].copy()
    # After the end there are no beats to depart from.
    recent[:, longest:] = -np.inf
    return np.asarray(begun[:, :longest] + evidence.end[end : end + longest])


def _backtrack(
    best: NDArray[np.float64], arrivals: NDArray[np.float32], space: BeatSpace, n: int
) -> NDArray[np.int64]:
    """Follow the best path from its last beat to its first: frames of the activation."""
    periods = space.periods
    longest = int(periods[-1])
    changes = _Changes(space)
    period, frame = map(int, np.unravel_index(int(best.argmax()), best.shape))
    at = frame + longest + n
    beats = []
    while (at := at - int(periods[period])) >= longest:
        beats.append(at - longest)
        period = int((arrivals[:, at] + changes.into(period)).argmax())
    if at + -(-int(periods[period]) // space.beat_share) > longest:
        beats.append(0)  # it begins just before the track, whose first frames are on that beat
    return np.array(beats[::-1], dtype=np.int64)
