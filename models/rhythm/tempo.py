"""A single tempo for a track: regression over its beats, and the activation's periodicity."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLOWEST, FASTEST = 40, 250
"""BPM that a metrical level may have."""
RANGE_FORM = r"(?:[4-9]\d|1\d\d|2[0-4]\d|250)-(?:[4-9]\d|1\d\d|2[0-4]\d|250)"
_WINDOW_BEATS = 12
"""Beats in one regression; fewer at the ends and in short tracks."""
_SAME_TEMPO = 0.04
"""Half-width of the range that counts as one tempo (MIREX tolerance)."""
_PREFERRED_BPM = 120.0
_MIN_BPM, _MAX_BPM = 55.0, 215.0
"""Tempi among which the activation's periodicity is sought."""
_STEADY = 0.01
_LEVEL_SPREAD = 0.6
_BEATS_A_CHORD, _HARMONIC_SPREAD = 4.0, 0.9
_FARTHEST = 5.0
"""Cap on squared deviations: rarer, or more frequent, chord changes make no difference."""
_REACH = 1.6
"""Distance in classes from a tempo to the first that no longer counts as its own."""
RELATED = (1.0, 0.5, 2.0, 1 / 3, 3.0)
"""Metrical relations under which two tempi represent the same pulse."""
_RELATED_WITHIN = 0.06


@dataclass(frozen=True, slots=True)
class TempoRange:
    """Tempi from ``low`` to ``high`` BPM, both inclusive."""

    low: float
    high: float

    def __contains__(self, tempo: float) -> bool:
        return self.low <= tempo <= self.high

    @classmethod
    def parse(cls, text: str) -> "TempoRange":
        """Parse a range that a person wrote.

        Raises:
            ValueError: It lacks the form that the message describes, or the higher BPM comes first.
        """
        if re.fullmatch(RANGE_FORM, text, re.ASCII) is None:
            raise ValueError(
                f"tempo_range is two whole BPM from {SLOWEST} to {FASTEST}, written as 80-160; "
                f"not {text[:40]!r}"
            )
        low, high = text.split("-")
        if int(low) > int(high):
            raise ValueError(f"tempo_range begins with the lower BPM: {high}-{low}, not {text}")
        return cls(float(low), float(high))


def local_tempi(beats_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tempo around each beat: least-squares slope over the surrounding beats.

    Args:
        beats_s: Seconds, ascending, ``[beats]`` with at least two.

    Returns:
        BPM, float64 ``[beats]``.
    """
    n = len(beats_s)
    size = min(_WINDOW_BEATS, n)
    runs = np.lib.stride_tricks.sliding_window_view(beats_s, size)
    x = np.arange(size) - (size - 1) / 2
    slopes = (runs @ x) / (x @ x)
    centre = np.clip(np.arange(n) - size // 2, 0, len(slopes) - 1)
    return np.asarray(60.0 / slopes[centre])


def dominant_tempo(beats_s: NDArray[np.float64]) -> float:
    """Tempo that holds most of the time, by regression over the beats that keep it.

    Args:
        beats_s: Seconds, ascending, ``[beats]``.

    Returns:
        BPM; 0 for fewer than three beats.
    """
    if len(beats_s) < 3:
        return 0.0
    tempi = local_tempi(beats_s)
    # Across a pause between beats the slope is not a tempo.
    logs, durations = np.log(tempi), np.where(tempi < 0.9 * SLOWEST, 0.0, 60.0 / tempi)
    order = np.argsort(logs)
    ordered, cumulated = logs[order], np.concatenate([[0.0], durations[order].cumsum()])
    half = np.log1p(_SAME_TEMPO)
    low, high = np.searchsorted(ordered, ordered - half), np.searchsorted(ordered, ordered + half)
    held = cumulated[high] - cumulated[low]
    centre = int(held.argmax())
    # Inside the cluster, places where the grid changes its phase do not move the median.
    middle = np.searchsorted(cumulated, (cumulated[low[centre]] + cumulated[high[centre]]) / 2)
    median = ordered[min(int(middle), len(ordered)) - 1]
    near = np.abs(logs - median) <= np.log1p(_STEADY)
    edges = np.flatnonzero(np.diff(near, prepend=False, append=False)).reshape(-1, 2)
    runs = [beats_s[start:stop] for start, stop in edges if stop - start > 2]
    if not runs:
        return float(np.exp(median))
    periods = [_slope(run) for run in runs]
    # A least-squares slope over n beats has a variance that falls with n³.
    return float(60.0 / np.average(periods, weights=[len(run) ** 3 for run in runs]))


def _slope(values: NDArray[np.float64]) -> float:
    """Least-squares slope of values over their index."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    return float(values @ x / (x @ x))


def periodicity_tempo(activation: NDArray[np.float32], frame_rate: float) -> float:
    """Tempo whose first, second and fourth multiples of the period correlate best.

    Args:
        activation: float32 ``[N]``, probability of a beat.
        frame_rate: Frames per second.

    Returns:
        BPM; 0 when the activation is too short (four slowest periods) or constant.
    """
    n = len(activation)
    longest = int(np.ceil(4 * 60.0 * frame_rate / _MIN_BPM)) + 1
    centred = activation.astype(np.float64) - activation.mean()
    if n <= longest or not centred.any():
        return 0.0
    spectrum = np.fft.rfft(centred, 1 << int(np.ceil(np.log2(2 * n))))
    lags = np.fft.irfft(np.abs(spectrum) ** 2)[: longest + 1]
    lags = lags / np.arange(n, n - longest - 1, -1)
    bpm = np.exp(np.arange(np.log(_MIN_BPM), np.log(_MAX_BPM), 0.005))
    period = 60.0 * frame_rate / bpm
    score = sum(np.interp(m * period, np.arange(longest + 1), lags) for m in (1, 2, 4))
    prior = np.exp(-0.5 * np.log2(bpm / _PREFERRED_BPM) ** 2)
    return float(bpm[int((score * prior).argmax())])


def level_prior(
    tempo: NDArray[np.float64] | float, usual: float = _PREFERRED_BPM
) -> NDArray[np.float64]:
    """Log-prior of metrical levels' tempi: normal over octaves around the usual one."""
    return np.asarray(-0.5 * (np.log2(tempo / usual) / _LEVEL_SPREAD) ** 2)


def harmonic_prior(
    tempo: NDArray[np.float64] | float, changes_per_second: float
) -> NDArray[np.float64]:
    """Log-prior of metrical levels by the harmony: a chord mostly lasts a bar of four beats.

    Args:
        tempo: BPM ``[…]``.
        changes_per_second: Chord changes; above 0.
    """
    beats_a_chord = np.asarray(tempo) / 60.0 / changes_per_second
    octaves = np.log2(beats_a_chord / _BEATS_A_CHORD)
    return np.asarray(-0.5 * np.minimum((octaves / _HARMONIC_SPREAD) ** 2, _FARTHEST))


def log_belief(
    logits: NDArray[np.float32], classes: NDArray[np.float64], tempi: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log-probability that a classifier's evidence gives to tempi.

    Args:
        logits: float32 ``[M, K]``, one row for every stretch of the track, M ≥ 1.
        classes: BPM of the K classes, evenly spaced on a logarithmic scale.
        tempi: BPM ``[…]``.

    Returns:
        float64 ``[…]``: the logarithm of the probability of the classes around each tempo (a tempo
        lies between two), at least that of a probability of 1e-4.
    """
    mean = logits.mean(axis=0, dtype=np.float64)
    posterior = np.exp(mean - mean.max())
    posterior /= posterior.sum()
    step = np.log(classes[1] / classes[0])
    distance = np.abs(np.log(np.asarray(tempi)[..., None] / classes)) / step
    return np.asarray(np.log((posterior * np.clip(_REACH - distance, 0.0, 1.0)).sum(-1) + 1e-4))


def are_related(tempo: float, other: float) -> bool:
    """Return whether two tempi agree, possibly at another metrical level."""
    return any(abs(tempo / (other * factor) - 1.0) < _RELATED_WITHIN for factor in RELATED)
