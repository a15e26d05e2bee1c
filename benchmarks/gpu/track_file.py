"""A track on disk, and how it is read: an MP3, or raw samples if there is no decoder."""

import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Options
from benchmarks.signals import encode, music_like
from pipelines.audio.decode import DecodeLimits, Decoder
from pipelines.audio.waveform import SAMPLE_RATE, Waveform

DURATION_S, DRY_S = 180.0, 6.0


@dataclass(frozen=True, slots=True)
class TrackFile:
    """A track.

    Attributes:
        kind: What the file is.
        read: Reads it.
    """

    path: Path
    duration_s: float
    kind: str
    read: Callable[[Path], Waveform]


@contextmanager
def track_file(sample_rate: int, options: Options) -> Iterator[TrackFile]:
    """Write a track, at ``sample_rate`` if, without a decoder, it cannot be resampled later."""
    duration_s = DRY_S if options.is_dry else DURATION_S
    samples = music_like(duration_s)
    with tempfile.TemporaryDirectory(prefix="afa-bench-") as name:
        path = Path(name) / "audio"
        if importlib.util.find_spec("av") is None:
            n = int(duration_s * sample_rate)
            mono = np.interp(
                np.arange(n) / sample_rate,
                np.arange(samples.shape[1]) / SAMPLE_RATE,
                samples.mean(axis=0),
            )
            np.save(path, (32_767 * mono).astype(np.int16))
            read = partial(_load, sample_rate)
            yield TrackFile(path.with_suffix(".npy"), duration_s, "raw int16, no decoder", read)
            return
        encode(path, samples, "mp3", "libmp3lame", "fltp", 320_000)
        decoder = Decoder()
        try:
            yield TrackFile(
                path, duration_s, "MP3 320k", lambda path: decoder.decode(path, DecodeLimits())
            )
        finally:
            decoder.close()


def _load(sample_rate: int, path: Path) -> Waveform:
    stored: NDArray[np.int16] = np.load(path)
    return Waveform(stored[None].astype(np.float32) / np.float32(32_768), sample_rate)
