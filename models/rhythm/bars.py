"""Downbeats and metre from beats: a Viterbi path over positions in bars of several lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.rhythm.harmony import standardised

METRES = (4, 3, 2, 6, 5, 7)
"""Beats in a bar that are distinguished, likeliest first."""

_COSTS = {4: 0.0, 3: 0.1, 2: 0.3, 6: 0.3, 5: 0.1, 7: 0.1}
"""Cost of each metre, in nats per beat."""
_SLIP = -9.0
"""Log-probability of leaving the regular order of positions, per beat."""
_IN_FOUR = 0.1
"""If at least this share of the beats in four or two are in four, all of them are."""
_FLOOR = 0.02
_TOLERANCE_FRAMES = 3
_ACCENT_WEIGHT = 0.8
_LOUDNESS_WEIGHT = 3.0
"""Nats per decibel, if the network finds no difference at all between beats."""
_ALIKE = 0.6
"""Standard deviation of the odds' logit from which on loudness does not count. One in a hundred
excerpts of music has a smaller one; a metronome, whatever its accents, has at most .54."""
_AS_LOUD_DB, _LOUDER_DB = 1.0, 5.0
"""Level differences up to the first are ignored; beyond it, they count up to the second."""
_EVEN = 0.8
"""Halves of a bar begin alike if the ratio of their mean downbeat probabilities exceeds this."""
_REGULAR = 0.5
"""Share of the differences that bars must explain for these to count fully."""


@dataclass(frozen=True, slots=True)
class Bars:
    """The bar structure of a track.

    Attributes:
        downbeats: Indices into the beats, ascending.
        metre: Beats in most bars.
        confidence: How far downbeats stand out from the other beats, times the share of beats that
            keep the metre, 0 to 1.
    """

    downbeats: NDArray[np.int64]
    metre: int
    confidence: float


def downbeat_odds(activation: NDArray[np.float32], beats: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability that each beat is a downbeat, given that it is a beat.

    Args:
        activation: float32 ``[N, 2]``, beat and downbeat, frames 10 ms apart.
        beats: Frames of the beats, ascending.

    Returns:
        float64 ``[beats]``, 0 to 1: the strongest downbeat within 30 ms against the strongest beat.
    """
    offsets = np.arange(-_TOLERANCE_FRAMES, _TOLERANCE_FRAMES + 1)
    around = np.clip(beats[:, None] + offsets, 0, len(activation) - 1)
    strongest = activation[around].max(axis=1, initial=0.0).astype(np.float64)
    return np.asarray(strongest[:, 1] / np.maximum(strongest.sum(axis=1), 1e-6))


def find_bars(
    odds: NDArray[np.float64],
    changes: Sequence[tuple[float, NDArray[np.float64]]] = (),
    levels_db: NDArray[np.float64] | None = None,
    is_drums: bool = False,
) -> Bars:
    """Find the downbeats among the beats.

    Chords change on downbeats more than elsewhere, which helps if the network finds no accents. If
    all beats are nearly the same to it, as with a metronome, the louder ones are downbeats. Music
    does not alternate between 2/4 and 4/4: if some of it is in four, bars of two are halves. Drums
    alone that begin each half of a bar alike are counted in four, as is usual, from the first such
    beat, since nothing distinguishes this from 2/4.

    Args:
        odds: float64 ``[beats]``, see `downbeat_odds`.
        changes: Each a weight and float64 ``[beats]``, see `models.rhythm.harmony`.
        levels_db: float64 ``[beats]``, how loud each beat is.
        is_drums: Whether the beats are of drums alone.

    Returns:
        The best path's downbeats and its most common metre; no beats give metre 4, confidence 0.
    """
    if len(odds) == 0:
        return Bars(np.zeros(0, dtype=np.int64), 4, 0.0)
    p = _posterior(odds, changes, levels_db)
    downbeats, counts = _best_bars(p, METRES)
    if counts[2] and counts[4] >= _IN_FOUR * (counts[2] + counts[4]):
        downbeats, counts = _best_bars(p, [metre for metre in METRES if metre != 2])
    metre = max(counts, key=lambda length: counts[length])
    share = counts[metre] / len(p)
    if is_drums and metre in (2, 4) and _spread(odds) >= _ALIKE:
        middles = np.union1d(downbeats - 2, downbeats + 2) if metre == 4 else downbeats
        middles = middles[(middles >= 0) & (middles < len(p))]
        if len(middles) and p[middles].mean() > max(0.5, _EVEN * p[downbeats].mean()):
            downbeats, metre = np.union1d(downbeats, middles)[::2], 4
    return Bars(downbeats, metre, _confidence(p, metre, share))


def _logit(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.clip(odds, _FLOOR, 1.0 - _FLOOR)
    return np.asarray(np.log(p / (1.0 - p)))


def _spread(odds: NDArray[np.float64]) -> float:
    """How different the beats are to the network, as the deviation of the odds' logit."""
    return float(_logit(odds).std())


def _posterior(
    odds: NDArray[np.float64],
    changes: Sequence[tuple[float, NDArray[np.float64]]],
    levels_db: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Probability of a downbeat at each beat from all kinds of evidence, within (0, 1)."""
    logit = _logit(odds)
    alike = max(0.0, 1.0 - _spread(odds) / _ALIKE)
    if changes:
        logit *= _ACCENT_WEIGHT
    for weight, change in changes:
        logit += weight * standardised(change)
    if levels_db is not None:
        logit += _LOUDNESS_WEIGHT * alike * _stress(levels_db)
    logit -= max(0.0, logit.mean())  # if every beat sounds like a downbeat, none stands out
    strongest = np.sort(logit)[-max(1, len(logit) // 4) :]
    logit += max(0.0, -strongest.mean())  # if none does, the longest bars would cost least
    return np.asarray(np.clip(1.0 / (1.0 + np.exp(-logit)), 0.005, 0.995))


def _stress(levels_db: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much louder or softer than most each beat is, in decibels, as far as bars explain it."""
    louder = levels_db - np.median(levels_db)
    beyond = np.sign(louder) * np.maximum(np.abs(louder) - _AS_LOUD_DB, 0.0)
    bounded = np.clip(beyond, -_LOUDER_DB, _LOUDER_DB)
    return np.asarray(bounded * min(1.0, _regularity(bounded) / _REGULAR))


def _regularity(values: NDArray[np.float64]) -> float:
    """Share of the variance of ``[beats]`` that positions in the best bars explain."""
    n, variance = len(values), values.var()
    within = [
        sum(values[place::metre].var() * len(values[place::metre]) for place in range(metre))
        / (n - metre)
        for metre in METRES
        if n >= 2 * metre
    ]
    if not within or not variance:
        return 0.0
    return float(max(0.0, 1.0 - min(within) * (n - 1) / (n * variance)))


def _best_bars(
    p: NDArray[np.float64], metres: Sequence[int]
) -> tuple[NDArray[np.int64], Mapping[int, int]]:
    """Downbeats of the best path, and how many beats are in each metre."""
    lengths = np.array(metres)
    first = np.cumsum(lengths) - lengths
    is_down = np.zeros(lengths.sum(), dtype=bool)
    is_down[first] = True
    metre_of = np.repeat(lengths, lengths)
    before = np.arange(len(is_down)) - 1
    before[first] = first + lengths - 1
    evidence = np.where(is_down, np.log(p)[:, None], np.log(1.0 - p)[:, None])
    evidence -= np.array([_COSTS[metre] for metre in metre_of])
    path = _viterbi(evidence, -np.log(metre_of), before)
    counts = {metre: int((metre_of[path] == metre).sum()) for metre in metres}
    return np.flatnonzero(is_down[path]), counts


def _viterbi(
    evidence: NDArray[np.float64],
    prior: NDArray[np.float64],
    before: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Best path through ``evidence [beats, states]``; a step comes from ``before`` or slips."""
    n = len(evidence)
    score = evidence[0] + prior
    came = np.zeros(evidence.shape, dtype=np.int64)
    for i in range(1, n):
        regular = score[before]
        jump = int(score.argmax())
        slipped = score[jump] + _SLIP + prior > regular
        came[i] = np.where(slipped, jump, before)
        score = np.where(slipped, score[jump] + _SLIP + prior, regular) + evidence[i]
    path = np.zeros(n, dtype=np.int64)
    path[-1] = score.argmax()
    for i in range(n - 1, 0, -1):
        path[i - 1] = came[i, path[i]]
    return path


def _confidence(p: NDArray[np.float64], metre: int, share: float) -> float:
    """How far downbeats stand out at the best phase, times the share that keeps the metre."""
    phases = [p[phase::metre].mean() for phase in range(metre) if phase < len(p)]
    top = max(phases)
    rest = (sum(phases) - top) / max(1, len(phases) - 1)
    return float(np.clip((top - rest) / max(top, 1e-6), 0.0, 1.0) * share)
