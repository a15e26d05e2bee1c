"""How far a recording's pitch standard lies from 440 Hz."""

import math

import torch
from torch import Tensor

from models.frontends import magnitudes

SAMPLE_RATE = 22_050
WIN_LENGTH = 16_384
"""1.35 Hz per bin: a tenth of a semitone at 230 Hz before interpolation."""

_N_FRAMES = 64
_N_PEAKS = 30
_F_MIN_HZ, _F_MAX_HZ = 100.0, 2000.0
_LEAST_AGREEMENT = 0.15
"""If the mean vector is shorter, there is no common tuning: noise and drums have .03-.1."""


def frame_starts(n_samples: int) -> list[int]:
    """Spread the frames over a recording; the last one ends with it.

    Integers, because float32 distinguishes only up to 2^24 samples, which is 12.7 min.

    Args:
        n_samples: At least `WIN_LENGTH`.
    """
    count = max(1, min(_N_FRAMES, n_samples // (WIN_LENGTH // 2) - 1))
    last = n_samples - WIN_LENGTH
    return [last * i // max(1, count - 1) for i in range(count)]


def estimate_tuning(waveform: Tensor) -> float:
    """Find where the partials of a recording lie between the semitones of 440 Hz.

    The deviations of the strongest spectral peaks are averaged on a circle of one semitone, in
    frames spread over the recording, which all have the same weight.

    Args:
        waveform: float32 or float16 ``[T]`` at 22,050 Hz.

    Returns:
        Cents, above -50 and up to 50: positive is sharp. 0 if the peaks do not agree (noise, drums,
        silence) and for anything shorter than 0.74 s.
    """
    n = waveform.shape[-1]
    if n < WIN_LENGTH:
        return 0.0
    frames = torch.stack([waveform[at : at + WIN_LENGTH] for at in frame_starts(n)]).float()
    first = math.ceil(_F_MIN_HZ * WIN_LENGTH / SAMPLE_RATE)
    last = int(_F_MAX_HZ * WIN_LENGTH / SAMPLE_RATE)
    window = torch.hann_window(WIN_LENGTH, device=frames.device)
    spectrum = magnitudes(torch.fft.rfft(frames.mul_(window))[:, first - 1 : last + 2])
    decibels = 20.0 * torch.log10(spectrum.clamp_min(1e-9))
    left, centre, right = decibels[:, :-2], decibels[:, 1:-1], decibels[:, 2:]
    is_peak = (centre > left) & (centre >= right)
    strength, picks = torch.where(is_peak, spectrum[:, 1:-1], 0.0).topk(_N_PEAKS, dim=-1)
    a, b, c = (side.gather(-1, picks) for side in (left, centre, right))
    curve = (2.0 * b - a - c).clamp_min(1e-9)
    bins = picks + first + (0.5 * (c - a) / curve).clamp(-0.5, 0.5)
    semitones = 12.0 * torch.log2(bins * (SAMPLE_RATE / WIN_LENGTH / 440.0))
    weights = strength / strength.sum(dim=-1, keepdim=True).clamp_min(1e-6)
    vectors = weights * torch.exp(2j * torch.pi * semitones)
    mean = vectors.sum() / weights.sum().clamp_min(1e-6)
    if float(mean.abs()) < _LEAST_AGREEMENT:
        return 0.0
    return float(mean.angle()) * 50.0 / math.pi
