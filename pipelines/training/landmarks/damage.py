"""Damage between the track and the microphone: rooms, other sounds, bad loudspeakers.

All functions take and return float32 ``[T]`` at `SAMPLE_RATE`, full scale ±1, of the same length.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from models.fingerprint.landmarks import SAMPLE_RATE

Mono = NDArray[np.float32]

_FIRST_ECHO_S = 0.005
_LONGEST_ROOM = 1.2
"""Multiple of the reverberation time, after which the tail has fallen by 72 dB."""
_TINY = 1e-12
_FLATTEST_HZ = 20.0


def damage(samples: Mono, other: Mono, rng: np.random.Generator) -> Mono:
    """Damage a clip at random; one in eight stays unchanged.

    Args:
        samples: The clip; silence stays silence.
        other: Other music, of the same length.
        rng: Draws the damage.

    Returns:
        float32 ``[T]`` within ±1.
    """
    if rng.random() < 0.3:
        samples = in_room(samples, rng.uniform(0.3, 2.5), rng.uniform(-8, 3), rng)
    if rng.random() < 0.3:
        samples = with_sound(samples, other, rng.uniform(0, 12))
    if rng.random() < 0.6:
        noise = coloured_noise(len(samples), rng.uniform(-0.2, 1.5), rng)
        samples = with_sound(samples, noise, rng.uniform(-4, 12))
    if rng.random() < 0.25:
        samples = in_band(samples, rng.uniform(100, 400), rng.uniform(2200, 5000))
    if rng.random() < 0.15:
        samples = overdriven(samples, rng.uniform(1, 6))
    return np.asarray(samples / max(1.0, float(np.abs(samples).max())), np.float32)


def in_room(samples: Mono, rt60_s: float, tail_db: float, rng: np.random.Generator) -> Mono:
    """Play in a room whose echoes are decaying noise.

    Args:
        samples: The clip.
        rt60_s: Reverberation time, in which the tail falls by 60 dB.
        tail_db: Energy of the tail relative to the direct sound.
        rng: Draws the room.
    """
    t = np.arange(round(_LONGEST_ROOM * rt60_s * SAMPLE_RATE)) / SAMPLE_RATE
    room = rng.standard_normal(len(t)) * 10 ** (-3 * t / rt60_s)
    room[t < _FIRST_ECHO_S] = 0
    room *= 10 ** (tail_db / 20) / np.sqrt(np.square(room).sum())
    room[0] = 1
    return np.asarray(fftconvolve(samples, room)[: len(samples)], np.float32)


def with_sound(samples: Mono, other: Mono, snr_db: float) -> Mono:
    """Add another sound, ``snr_db`` below the clip's level."""
    power, unwanted = (np.mean(np.square(x, dtype=np.float64)) for x in (samples, other))
    gain = np.sqrt(power / (unwanted + _TINY)) * 10 ** (-snr_db / 20)
    return np.asarray(samples + other * gain, np.float32)


def coloured_noise(n: int, exponent: float, rng: np.random.Generator) -> Mono:
    """Return noise ``[n]`` with power falling as frequency to ``exponent``: 0 white, 1 pink."""
    hz = np.maximum(np.fft.rfftfreq(n, 1 / SAMPLE_RATE), _FLATTEST_HZ)
    spectrum = np.fft.rfft(rng.standard_normal(n)) * (hz / _FLATTEST_HZ) ** (-exponent / 2)
    return np.asarray(np.fft.irfft(spectrum, n), np.float32)


def in_band(samples: Mono, lowest_hz: float, highest_hz: float) -> Mono:
    """Play over a telephone or a small loudspeaker: -3 dB at both ends, without delay."""
    hz = np.maximum(np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE), 1.0)
    gain = 1 / np.sqrt((1 + (lowest_hz / hz) ** 6) * (1 + (hz / highest_hz) ** 12))
    return np.asarray(np.fft.irfft(np.fft.rfft(samples) * gain, len(samples)), np.float32)


def overdriven(samples: Mono, drive: float) -> Mono:
    """Clip at the peak divided by ``drive``; the peak becomes 1."""
    peak = float(np.abs(samples).max()) + _TINY
    return np.asarray(np.clip(samples * (drive / peak), -1, 1), np.float32)
