"""Audio files for tests, made with PyAV: any container and codec that the service accepts."""

import struct
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

RATE = 44_100
LAYOUTS = {1: "mono", 2: "stereo"}


def encode(
    path: Path,
    samples: np.ndarray,
    container: str,
    codec: str,
    *,
    rate: int = RATE,
    sample_format: str = "fltp",
) -> Path:
    """Encode float samples ``[C, T]``."""
    layout = LAYOUTS[samples.shape[0]]
    with av.open(str(path), "w", format=container) as output:
        stream: Any = output.add_stream(
            codec, rate=rate, layout=layout, options={"strict": "experimental"}
        )
        stream.format = sample_format
        for start in range(0, samples.shape[1], 8192):
            block = np.ascontiguousarray(samples[:, start : start + 8192], dtype=np.float32)
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def click_track(tempo: float, duration_s: float, channels: int = 2, rate: int = RATE) -> np.ndarray:
    """Decaying clicks on every beat over a soft A minor triad, float ``[C, T]``."""
    t = np.arange(round(duration_s * rate)) / rate
    chord = sum(np.sin(2 * np.pi * f * t) for f in (220.0, 261.63, 329.63)) * 0.05
    since_beat = t % (60 / tempo)
    clicks = 0.6 * np.exp(-since_beat * 60) * np.sin(2 * np.pi * 1500 * since_beat)
    return np.repeat((chord + clicks)[None], channels, axis=0).astype(np.float32)


def write_wav(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    """Write 16-bit PCM with any number of channels."""
    with wave.open(str(path), "wb") as file:
        file.setparams((samples.shape[0], 2, rate, 0, "NONE", ""))
        file.writeframes((samples.T * 32_767).astype("<i2").tobytes())
    return path


def silent_flac(path: Path, duration_s: float, rate: int = 8000) -> Path:
    """Write a FLAC of silence; hours of it take little time and space."""
    with av.open(str(path), "w", format="flac") as output:
        stream: Any = output.add_stream("flac", rate=rate, layout="mono")
        stream.format = "s16"
        block = np.zeros((1, 65_535), np.int16)
        for start in range(0, round(duration_s * rate), block.shape[1]):
            frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def float_wav(path: Path, samples: np.ndarray, rate: int = RATE, dtype: str = "<f4") -> Path:
    """Write mono floats ``[T]`` as they are, whatever they are."""
    with np.errstate(over="ignore"):
        data = samples.astype(dtype).tobytes()
    width = np.dtype(dtype).itemsize
    sizes = (16, 3, 1, rate, rate * width, width, 8 * width)
    chunk = struct.pack("<IHHIIHH", *sizes)
    head = b"WAVEfmt " + chunk + b"data" + struct.pack("<I", len(data))
    path.write_bytes(b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data)
    return path
