"""Changes that leave a recording the same music: speed, mastering, bandwidth, noise.

The level is not among them: every network gets tracks at the same level.
"""

from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, lfilter, sosfilt

from pipelines.audio.waveform import SAMPLE_RATE

Mono = NDArray[np.float32]

_NODES_HZ = (20.0, 80.0, 250.0, 800.0, 2500.0, 8000.0, 20_000.0)
_NODE_DB = 3.0
_FASTEST = 0.04
_ATTACK_S = 0.02


def alter(samples: Mono, rng: Random) -> Mono:
    """Alter a mono recording ``[T]`` at 44.1 kHz, full scale ±1, in randomly drawn ways."""
    if rng.random() < 0.5:
        samples = at_speed(samples, 1 + rng.uniform(-_FASTEST, _FASTEST))
    if rng.random() < 0.5:
        samples = compress(equalise(samples, rng), rng)
    if rng.random() < 0.3:
        samples = low_pass(samples, rng.uniform(3500, 11_000))
    if rng.random() < 0.3:
        samples = with_noise(samples, rng.uniform(15, 30), rng)
    return samples


def at_speed(samples: Mono, speed: float) -> Mono:
    """Play faster or slower, pitch included."""
    import soxr

    return np.asarray(soxr.resample(samples, SAMPLE_RATE * speed, SAMPLE_RATE), np.float32)


def equalise(samples: Mono, rng: Random) -> Mono:
    """Raise and lower broad bands by a few decibels."""
    hz = np.maximum(np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE), _NODES_HZ[0])
    nodes_db = [rng.gauss(0, _NODE_DB) for _ in _NODES_HZ]
    gain_db = np.interp(np.log(hz), np.log(_NODES_HZ), nodes_db)
    spectrum = np.fft.rfft(samples) * 10 ** (gain_db / 20)
    return np.asarray(np.fft.irfft(spectrum, len(samples)), np.float32)


def compress(samples: Mono, rng: Random) -> Mono:
    """Attenuate what is louder than a drawn threshold."""
    decay = float(np.exp(-1 / (_ATTACK_S * SAMPLE_RATE)))
    power = lfilter([1 - decay], [1, -decay], np.square(samples))
    envelope = np.sqrt(np.maximum(power, 1e-9))
    threshold = rng.uniform(0.5, 1.2) * float(np.sqrt(np.mean(np.square(samples))))
    gain = np.minimum(1, (threshold / envelope) ** rng.uniform(0.3, 0.7))
    return np.asarray(samples * gain, np.float32)


def low_pass(samples: Mono, hz: float) -> Mono:
    """Remove everything above a frequency, as low bit rates do."""
    return np.asarray(sosfilt(butter(6, hz, fs=SAMPLE_RATE, output="sos"), samples), np.float32)


def with_noise(samples: Mono, snr_db: float, rng: Random) -> Mono:
    """Add pink noise."""
    noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(len(samples))
    hz = np.maximum(np.fft.rfftfreq(len(samples), 1 / SAMPLE_RATE), _NODES_HZ[0])
    pink = np.fft.irfft(np.fft.rfft(noise) / np.sqrt(hz), len(samples))
    wanted = np.mean(np.square(samples)) / 10 ** (snr_db / 10)
    return np.asarray(samples + pink * np.sqrt(wanted / np.mean(np.square(pink))), np.float32)
