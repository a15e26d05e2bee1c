"""Music-like test audio, made here so that benchmarks need no files."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 44_100


def music_like(duration_s: float, seed: int = 0) -> NDArray[np.float32]:
    """Chords with a beat over noise, float32 ``[2, T]`` at 44.1 kHz, peak about 0.6.

    Neither silent nor white, so that codecs and detectors work about as hard as on music.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(int(duration_s * RATE)) / RATE
    beat = np.exp(-8 * (t % 0.5))
    left, right = np.zeros((2, t.size))
    for i, frequency in enumerate((110.0, 220.0, 277.2, 329.6, 440.0, 1318.5)):
        voice = np.sin(2 * np.pi * frequency * t + i) * (0.5 + 0.5 * np.sin(t * (i + 1) / 3))
        left += voice * (0.5 + 0.08 * i)
        right += voice * (1.0 - 0.08 * i)
    noise = rng.standard_normal((2, t.size)) * beat
    mix = np.stack([left, right]) * 0.08 + noise * 0.05
    return mix.astype(np.float32)


def encode(
    path: Path,
    samples: NDArray[np.float32],
    container: str,
    codec: str,
    sample_format: str,
    bit_rate: int = 0,
    rate: int = RATE,
) -> Path:
    """Write ``[2, T]`` samples at 44.1 kHz to a file, resampled to ``rate``."""
    import av

    with av.open(str(path), "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate, layout="stereo")
        stream.format = sample_format
        if bit_rate:
            stream.bit_rate = bit_rate
        for start in range(0, samples.shape[1], RATE):
            block = np.ascontiguousarray(samples[:, start : start + RATE])
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="stereo")
            frame.sample_rate, frame.pts, frame.time_base = RATE, start, Fraction(1, RATE)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path
