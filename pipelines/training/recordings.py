"""Recordings without labels: what was read of each is kept, once for files of one content.

Invariant: what is kept is whole, and named by its file's content, so a stopped run goes on.
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
"""What is shorter teaches no key and no chords: 30 s, though played in tune 3 % faster."""


class Recording(Protocol):
    """What is read of a file."""

    def save(self, path: Path) -> None:
        """Write it; the file appears whole or not at all."""


Reader = Callable[[Path], Recording | None]
"""Reads a file; None where it is no music: undecodable, too short or silent."""


def keep_recording(source: Path, folder: Path, read: Reader) -> Path | None:
    """Keep what is read of a file in ``folder``, unless it is there.

    Returns:
        Where it lies, the same for files of the same content; None where the file is no music.
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
    """Decode a file's first seconds to mono ``[T]``; None where it cannot be decoded."""
    try:
        (decoded,) = decode_segments(source, [(0.0, longest_s)], DecodeLimits())
    except AudioError:
        return None
    return resample(decoded.mono(), decoded.sample_rate, sample_rate)
