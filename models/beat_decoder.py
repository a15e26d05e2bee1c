"""Bar-pointer decoding of beat activations, exact and without a loop over frames or states.

A bar-pointer path moves through a beat at constant speed and may change tempo only at the next
beat. So a whole beat period is one step: the score of a period is a difference of prefix sums, and
the Viterbi recursion reaches back at least the shortest period. Blocks of that length are therefore
solved at once, over all frames in the block, all tempi and all rows of the batch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_RATE = 100
"""Activation frames a second the decoder wants."""

_FLOOR = 1e-4


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
    b, n = activation.shape
    if n == 0:
        return [np.zeros(0, dtype=np.int64) for _ in range(b)]
    periods = space.periods
    longest = int(periods[-1])
    sums_on, sums_off = _prefix_sums(activation, space, longest)
    best, arrivals = _forward(sums_on, sums_off, space, n)
    return [_backtrack(best[row], arrivals[row], periods, longest, n) for row in range(b)]


def _prefix_sums(
    activation: NDArray[np.float32], space: BeatSpace, longest: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prefix sums of the log-likelihoods on and off the beat.

    Before the start and behind the end lie ``longest`` frames without evidence, so that a path may
    begin and end anywhere in a period.
    """
    p = np.clip(activation.astype(np.float64), _FLOOR, 1.0 - _FLOOR)
    on = np.log(p)
    off = np.log((1.0 - p) / (space.beat_share - 1))
    pad = ((0, 0), (longest + 1, longest))
    return np.pad(on, pad).cumsum(axis=1), np.pad(off, pad).cumsum(axis=1)


def _forward(
    sums_on: NDArray[np.float64], sums_off: NDArray[np.float64], space: BeatSpace, n: int
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Run the recursion over frames of the padded activation.

    Returns:
        ``best [B, longest, K]``: score of the best path whose first beat at or after the end lies
        in that frame and closes that period. ``arrivals [B, longest + N, K]``: for a beat from
        which period k starts, by how many steps the period before it was another.
    """
    periods = space.periods
    b, k = len(sums_on), len(periods)
    shortest, longest, reach = int(periods[0]), int(periods[-1]), space.reach
    on_frames = -(-periods // space.beat_share)
    columns = np.arange(k)
    transitions = _transitions(space)
    end = longest + n
    # recent[:, i, k]: best score of a path with a beat i frames into the memory, after which
    # period k begins. A path may begin anywhere before the track.
    recent = np.zeros((b, longest + shortest, k))
    arrivals = np.zeros((b, end, k), dtype=np.int8)
    padded = np.full((b, shortest, k + 2 * reach), -np.inf)
    neighbours = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=2)

    def arrive(first: int, count: int) -> NDArray[np.float64]:
        """Score of closing period k with a beat in frame ``first`` + i: ``[B, count, K]``."""
        frames = np.arange(first, first + count)
        starts = frames[:, None] - periods
        middle = starts + on_frames
        evidence = (sums_on[:, middle] - sums_on[:, starts]) + (
            sums_off[:, frames][:, :, None] - sums_off[:, middle]
        )
        slots = np.minimum(starts - first + longest, longest + shortest - 1)
        return np.asarray(recent[:, slots, columns] + evidence)

    for start in range(longest, end, shortest):
        count = min(shortest, end - start)
        padded[:, :count, reach : reach + k] = arrive(start, count)
        scores = neighbours[:, :count] + transitions
        pick = scores.argmax(axis=-1)
        arrivals[:, start : start + count] = pick - reach
        recent[:, longest : longest + count] = np.take_along_axis(scores, pick[..., None], -1)[
            ..., 0
        ]
        recent[:, :longest] = recent[:, count : count + longest].copy()
    # Behind the end there are no beats to depart from.
    recent[:, longest:] = -np.inf
    return arrive(end, longest), arrivals


def _backtrack(
    best: NDArray[np.float64],
    arrivals: NDArray[np.int8],
    periods: NDArray[np.int64],
    longest: int,
    n: int,
) -> NDArray[np.int64]:
    """Follow the best path from its last beat to its first: frames of the activation."""
    frame, k = np.unravel_index(int(best.argmax()), best.shape)
    at, period = int(frame) + longest + n, int(k)
    beats = []
    while True:
        at -= int(periods[period])
        if at < longest:
            break
        beats.append(at - longest)
        period += int(arrivals[at, period])
    return np.array(beats[::-1], dtype=np.int64)
