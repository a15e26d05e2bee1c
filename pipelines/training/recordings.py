"""Recordings without labels: what is read of each is kept, once per distinct content.

Invariant: kept files are whole, and named by their source's content, so a stopped run can resume.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.audio.decode import DecodeLimits, decode_segments
from pipelines.audio.resample import resample
from pipelines.audio.waveform import AudioError

SHORTEST_S = 31.0
"""Shorter files teach no key or chords: 30 s must remain even if tuning plays them 3 % faster."""


class Recording(Protocol):
    """What is read from a file."""

    def save(self, path: Path) -> None:
        """Write it; the file appears whole or not at all."""


Reader = Callable[[Path], Recording | None]
"""Reads a file; None if it is not music: undecodable, too short or silent."""


def keep_recording(source: Path, folder: Path, read: Reader) -> Path | None:
    """Save what is read from a file in ``folder``, unless it is already there.

    Returns:
        Its path, the same for files with the same content; None if the file is not music.
    """
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kept = folder / f"{digest[:16]}.npz"
    if not kept.exists():
        recording = read(source)
        if recording is None:
            return None
        recording.save(kept)
    return kept


def decode_beginning(
    source: Path, longest_s: float, sample_rate: int
) -> NDArray[np.float32] | None:
    """Decode a file's first seconds to mono ``[T]``; None if it cannot be decoded."""
    try:
        (decoded,) = decode_segments(source, [(0.0, longest_s)], DecodeLimits())
    except AudioError:
        return None
    return resample(decoded.mono(), decoded.sample_rate, sample_rate)
