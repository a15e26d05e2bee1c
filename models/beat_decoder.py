"""Bar-pointer decoding of beat activations, exact and without a loop over frames or states.

A bar-pointer path moves through a beat at constant speed and may change tempo only at the next
beat. So a whole beat period is one step: the score of a period is a difference of prefix sums, and
the Viterbi recursion reaches back at least the shortest period. Blocks of that length are therefore
solved at once, over all frames in the block and all tempi.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_RATE = 100
"""Activation frames a second the decoder wants."""

_FLOOR = 1e-4
_BLOCKS_AHEAD = 64
"""Blocks whose evidence is computed at once: an hour's would take 250 MB."""


@dataclass(frozen=True, slots=True)
class BeatSpace:
    """The bar pointer's tempi and probabilities.

    Attributes:
        min_bpm: Slowest tempo.
        max_bpm: Fastest tempo.
        tempo_inertia: Weight of |ln(tempo ratio)| from beat to beat; 100 is Krebs et al.'s.
        beat_share: The first 1/16 of a beat period is "on the beat" (Böck et al.'s λ = 16).
        reach: Most steps of 10 ms that two successive periods differ by.
    """

    min_bpm: float = 55.0
    max_bpm: float = 215.0
    tempo_inertia: float = 100.0
    beat_share: int = 16
    reach: int = 10

    @property
    def periods(self) -> NDArray[np.int64]:
        """Beat periods in frames, ascending, ``[K]``."""
        shortest = round(60.0 * FRAME_RATE / self.max_bpm)
        longest = round(60.0 * FRAME_RATE / self.min_bpm)
        return np.arange(shortest, max(shortest, longest) + 1)


def upsample(activation: NDArray[np.float32], factor: int = 2) -> NDArray[np.float32]:
    """Interpolate ``[..., N]`` linearly to ``[..., N · factor]``; old frames keep their times."""
    following = np.concatenate([activation[..., 1:], activation[..., -1:]], axis=-1)
    weights = np.arange(factor, dtype=np.float32) / factor
    fine = activation[..., None] * (1.0 - weights) + following[..., None] * weights
    return np.asarray(fine.reshape(*activation.shape[:-1], -1), dtype=np.float32)


def _transitions(space: BeatSpace) -> NDArray[np.float64]:
    """Log-probability of a period given the one before, ``[K, offset of the one before]``."""
    periods = space.periods
    offsets = np.arange(-space.reach, space.reach + 1)
    last = periods[:, None] + offsets
    valid = (last >= periods[0]) & (last <= periods[-1])
    scores: NDArray[np.float64] = np.full(last.shape, -np.inf)
    ratio = np.log(np.broadcast_to(periods[:, None], last.shape)[valid] / last[valid])
    scores[valid] = -space.tempo_inertia * np.abs(ratio)
    # Normalise over the next period, for every last one.
    into = np.arange(len(periods))[:, None] + offsets
    total = np.zeros(len(periods))
    np.add.at(total, into[valid], np.exp(scores[valid]))
    scores[valid] -= np.log(total[into[valid]])
    return scores


def decode_beats(
    activation: NDArray[np.float32], space: BeatSpace | None = None
) -> list[NDArray[np.int64]]:
    """Find the most likely beats of every row.

    Args:
        activation: float32 ``[B, N]``, probability of a beat (of any kind) in frames 10 ms apart.
        space: Tempi and transition probabilities.

    Returns:
        For every row the beats' frames, ascending; N = 0 gives none. Silence gives a grid too: what
        a beat is worth is not decided here.

    References:
        Krebs, Böck & Widmer, "An efficient state-space model for joint tempo and meter tracking",
        ISMIR 2015; Böck, Krebs & Widmer, ISMIR 2014.
    """
    space = space or BeatSpace()
    return [_decode_row(row, space) for row in activation]


def tempo_likelihood(activation: NDArray[np.float32], tempo: float, margin: float = 1.1) -> float:
    """Log-likelihood of the best beats about one tempo, per second.

    Args:
        activation: float32 ``[N]``, N ≥ 1, as in `decode_beats`.
        tempo: BPM.
        margin: Tempi up to so many times faster and slower count as this one.
    """
    space = BeatSpace(tempo / margin, tempo * margin)
    best, _ = _forward(_Evidence(activation, space), space, len(activation))
    return float(best.max()) * FRAME_RATE / len(activation)


def _decode_row(activation: NDArray[np.float32], space: BeatSpace) -> NDArray[np.int64]:
    n = len(activation)
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    best, arrivals = _forward(_Evidence(activation, space), space, n)
    return _backtrack(best, arrivals, space, n)


class _Evidence:
    """Log-likelihood of beat periods that end in given frames.

    Before the start and behind the end lie as many frames without evidence as the longest period
    has, so that a path may begin and end anywhere in a period.
    """

    def __init__(self, activation: NDArray[np.float32], space: BeatSpace) -> None:
        periods = space.periods
        self._longest = int(periods[-1])
        p = np.clip(activation.astype(np.float64), _FLOOR, 1.0 - _FLOOR)
        pad = (self._longest + 1, self._longest)
        on = np.pad(np.log(p), pad).cumsum()
        self._off = np.pad(np.log((1.0 - p) / (space.beat_share - 1)), pad).cumsum()
        # Sums up to where the frames on the beat give way to those behind it, and to the start.
        reach = self._longest + 1
        self._turns = np.lib.stride_tricks.sliding_window_view(on - self._off, reach)
        self._starts = np.lib.stride_tricks.sliding_window_view(on, reach)
        self._start_columns = self._longest - periods
        self._turn_columns = self._start_columns + -(-periods // space.beat_share)

    def __call__(self, first: int, count: int) -> NDArray[np.float64]:
        """Score of a period k that ends in the padded frame ``first`` + i: ``[count, K]``."""
        rows = slice(first - self._longest, first - self._longest + count)
        on_beat = self._turns[rows].take(self._turn_columns, axis=1)
        on_beat -= self._starts[rows].take(self._start_columns, axis=1)
        on_beat += self._off[first : first + count, None]
        return on_beat


def _forward(
    evidence: _Evidence, space: BeatSpace, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Run the recursion over frames of the padded activation.

    Returns:
        ``best [longest, K]``: score of the best path whose first beat at or after the end lies in
        that frame and closes that period. ``arrivals [longest + N, K]``: score of the best path
        that closes period k with a beat in that frame, against the block's best.
    """
    periods = space.periods
    k = len(periods)
    shortest, longest, reach = int(periods[0]), int(periods[-1]), space.reach
    transitions = np.ascontiguousarray(_transitions(space).T, dtype=np.float32)[:, None]
    end = longest + n
    # recent[i, k]: best score of a path with a beat i frames into the memory, after which period k
    # begins. A path may begin anywhere before the track.
    recent = np.zeros((longest + shortest, k))
    arrivals = np.zeros((end, k), dtype=np.float32)
    padded = np.full((shortest, k + 2 * reach), -np.inf, dtype=np.float32)
    neighbours = np.lib.stride_tricks.sliding_window_view(padded, k, axis=1).swapaxes(0, 1)
    slots = np.arange(max(shortest, longest))[:, None] - periods + longest
    departures = np.minimum(slots, len(recent) - 1) * k + np.arange(k)
    ahead, known = evidence(longest, 0), longest
    for start in range(longest, end, shortest):
        count = min(shortest, end - start)
        if start == known:
            first = known
            known = min(end, start + _BLOCKS_AHEAD * shortest)
            ahead = evidence(first, known - first)
        arrive = recent.take(departures[:count]) + ahead[start - first : start - first + count]
        highest = arrive.max()
        arrivals[start : start + count] = arrive - highest
        padded[:count, reach : reach + k] = arrivals[start : start + count]
        best = (neighbours[:, :count] + transitions).max(axis=0)
        recent[longest : longest + count] = best + highest
        recent[:longest] = recent[count : count + longest].copy()
    # Behind the end there are no beats to depart from.
    recent[longest:] = -np.inf
    return recent.take(departures[:longest]) + evidence(end, longest), arrivals


def _backtrack(
    best: NDArray[np.float64], arrivals: NDArray[np.float32], space: BeatSpace, n: int
) -> NDArray[np.int64]:
    """Follow the best path from its last beat to its first: frames of the activation."""
    periods = space.periods
    longest, reach = int(periods[-1]), space.reach
    transitions = _transitions(space)
    scores = np.full(len(periods) + 2 * reach, -np.inf)
    frame, k = np.unravel_index(int(best.argmax()), best.shape)
    at, period = int(frame) + longest + n, int(k)
    beats = []
    while True:
        at -= int(periods[period])
        if at < longest:
            break
        beats.append(at - longest)
        scores[reach:-reach] = arrivals[at]
        period += int((scores[period : period + 2 * reach + 1] + transitions[period]).argmax())
        period -= reach
    return np.array(beats[::-1], dtype=np.int64)
