"""Short-time sound: onset strength, level and timbre, and where one sound changes to the next."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.frontends import BandSums

SAMPLE_RATE = 22_050
HOP_LENGTH = 441
WIN_LENGTH = 1024
FRAME_RATE = SAMPLE_RATE / HOP_LENGTH
N_TIMBRE = 12
FLOOR_DB = -100.0

_N_BANDS = 40
_F_MIN_HZ, _F_MAX_HZ = 40.0, 10_000.0
_SHORTEST, _LONGEST = 4, 150
"""Frames from one boundary to the next: 80 ms to 3 s; what is longer is divided evenly."""
_STEP_DB = 1.5
"""How far a peak of the onset strength stands above the mean of half a second around it."""
_REACH = 4
"""The surroundings of a boundary are this many times the shortest section on either side."""
_CHANCE = 1.75
"""Novelty, in standard errors, that chance explains: steady noise reaches 1.7."""


def band_filters() -> NDArray[np.float32]:
    """Triangles evenly spaced on the mel scale, float32 ``[513, 40]``, each summing to one."""
    mel = np.linspace(math.log1p(_F_MIN_HZ / 700.0), math.log1p(_F_MAX_HZ / 700.0), _N_BANDS + 2)
    edges = 700.0 * np.expm1(mel)
    bins = np.arange(WIN_LENGTH // 2 + 1) * SAMPLE_RATE / WIN_LENGTH
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rise = (bins[:, None] - low) / (centre - low)
    fall = (high - bins[:, None]) / (high - centre)
    bank = np.maximum(np.minimum(rise, fall), 0.0)
    # The lowest triangles are narrower than a bin: they get the nearest one.
    empty = bank.sum(axis=0) < 0.1
    bank[np.abs(bins[:, None] - centre).argmin(axis=0)[empty], np.flatnonzero(empty)] = 1.0
    return np.asarray(bank / bank.sum(axis=0), dtype=np.float32)


class SoundFrames(nn.Module):
    """Onset strength, level and timbre, 50 frames per second."""

    cosines: Tensor

    def __init__(self) -> None:
        super().__init__()
        # One column more than the bands: a sine's power spreads over Hann's noise bandwidth of 1.5
        # bins. A full-scale sine peaks at (sum of the window / 2)².
        columns = nn.functional.pad(torch.from_numpy(band_filters()), (0, 1), value=1.0 / 1.5)
        window = torch.hann_window(WIN_LENGTH) / (WIN_LENGTH / 4)
        self._bands = BandSums(columns, window, WIN_LENGTH, power=2)
        n = torch.arange(_N_BANDS, dtype=torch.float64) + 0.5
        k = torch.arange(N_TIMBRE, dtype=torch.float64)
        cosines = torch.cos(torch.pi / _N_BANDS * n[:, None] * k) * math.sqrt(2.0 / _N_BANDS)
        cosines[:, 0] /= math.sqrt(2.0)
        self.register_buffer("cosines", cosines.float())

    def forward(self, waveform: Tensor) -> Tensor:
        """Describe centred frames; outside the waveform there is silence.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, full scale ±1.

        Returns:
            float32 ``[B, ⌈T / 441⌉, 14]``: onset strength (mean rise over the bands since two
            frames before, dB, 0 in the first two frames), level (dB re full-scale sine, floor
            -100), then 12 cosine coefficients of the band levels (dB), the first for their sum.
            Silence gives onset 0 and level -100.
        """
        n_frames = -(-waveform.shape[-1] // HOP_LENGTH)
        padded = nn.functional.pad(waveform, (WIN_LENGTH // 2, WIN_LENGTH))
        frames = padded.unfold(-1, WIN_LENGTH, HOP_LENGTH)[:, :n_frames]
        powers = self._bands(frames)
        decibels = 10.0 * torch.log10(powers.clamp_min(10.0 ** (FLOOR_DB / 10.0)))
        bands, level = decibels[..., :-1], decibels[..., -1:]
        rise = (bands[:, 2:] - bands[:, :-2]).clamp_min(0.0).mean(-1, keepdim=True)
        onset = nn.functional.pad(rise, (0, 0, min(2, n_frames), 0))[:, :n_frames]
        return torch.cat([onset, level, (bands - FLOOR_DB) @ self.cosines], dim=-1)


def find_boundaries(onset: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cut a track into sounds at the peaks of its onset strength.

    Args:
        onset: float ``[N]``, dB, 50 frames per second.

    Returns:
        Frames ``[S + 1]``, ascending from 0 to N.
    """
    n = len(onset)
    if n == 0:
        return np.zeros(1, dtype=np.int64)
    radius = 12
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(onset, radius, mode="edge"), 2 * radius + 1
    )
    near = np.lib.stride_tricks.sliding_window_view(
        np.pad(onset, _SHORTEST, mode="constant"), 2 * _SHORTEST + 1
    )
    is_peak = (onset >= near.max(axis=1)) & (onset > around.mean(axis=1) + _STEP_DB)
    peaks = np.flatnonzero(is_peak)
    peaks = peaks[(peaks >= _SHORTEST) & (peaks <= n - _SHORTEST)]
    peaks = peaks[np.diff(peaks, prepend=-_SHORTEST) >= _SHORTEST]
    edges = np.concatenate([[0], peaks, [n]])
    parts = np.maximum(1, -(-np.diff(edges) // _LONGEST))
    starts = np.repeat(edges[:-1], parts)
    step = np.repeat(np.diff(edges) / parts, parts)
    number = np.arange(len(starts)) - np.repeat(np.cumsum(parts) - parts, parts)
    return np.concatenate([np.round(starts + number * step).astype(np.int64), [n]])


def section_boundaries(
    features: NDArray[np.float64], half_width: int, shortest: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find where the sound changes lastingly.

    The novelty of a frame is the distance between the mean features of the stretches before and
    after it. A boundary is a peak half a standard deviation above the mean of the novelty around
    it, so that one great change (a silent bridge) does not hide the verses elsewhere; in sound that
    never changes there is none.

    Args:
        features: float ``[N, D]``, comparable scales.
        half_width: Frames in each stretch.
        shortest: Minimum frames in a section.

    Returns:
        Frames ``[S + 1]``, ascending from 0 to N (a track without lasting change is one section),
        and the confidence of every section's start, ``[S]``, 0 to 1: the share of a boundary's
        novelty above what a boundary needs. That of the track's start is 1.
    """
    n = len(features)
    if n < 2 * shortest:
        return np.array([0, n]), np.ones(1)
    at = np.arange(n + 1)
    low, high = np.maximum(at - half_width, 0), np.minimum(at + half_width, n)
    before, chance_before = _mean_and_error(features, low, at)
    behind, chance_behind = _mean_and_error(features, at, high)
    chance = _CHANCE * np.sqrt(chance_before + chance_behind)
    novelty = np.linalg.norm(behind - before, axis=1)
    novelty[:shortest] = 0.0
    novelty[n + 1 - shortest :] = 0.0
    around = np.lib.stride_tricks.sliding_window_view(np.pad(novelty, shortest), 2 * shortest + 1)
    low, high = (np.clip(at + d * shortest, shortest, n + 1 - shortest) for d in (-_REACH, _REACH))
    count = np.maximum(high - low, 1)
    mean, square = (
        (total[high] - total[low]) / count
        for total in (np.append(0.0, np.cumsum(novelty**power)) for power in (1, 2))
    )
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    threshold = np.maximum(mean + 0.5 * deviation, chance)
    peaks = np.flatnonzero((novelty >= around.max(axis=1)) & (novelty > threshold))
    peaks = peaks[np.diff(peaks, prepend=-shortest) >= shortest]
    confidence = 1.0 - threshold[peaks] / novelty[peaks]
    return np.concatenate([[0], peaks, [n]]), np.concatenate([[1.0], confidence])


def _mean_and_error(
    features: NDArray[np.float64], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each stretch, ``[stretches, D]``, and the variance of that mean, ``[stretches]``."""
    count = np.maximum(stops - starts, 1)[:, None]
    mean, square = (
        (sums[stops] - sums[starts]) / count
        for sums in (
            np.concatenate([np.zeros((1, features.shape[1])), (features**power).cumsum(axis=0)])
            for power in (1, 2)
        )
    )
    variance = np.maximum(square - mean**2, 0.0)
    return mean, (variance / count).sum(axis=1)
