"""A fingerprint: landmarks on a grid of frames, in plain arrays that cross processes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MODEL_ID = "afa-landmarks-5"
"""Changes whenever new landmarks, hashes or index entries become unlike old ones."""
SAMPLE_RATE = 11_025
"""Hz. Landmarks end at 4.2 kHz, so nothing above 5.5 kHz is needed."""
N_FFT = 1024
HOP_LENGTH = 256
FRAME_S = HOP_LENGTH / SAMPLE_RATE
"""Seconds in a frame, the unit of all fingerprint times: 23.2 ms."""
LOWEST_HZ = 200.0
HIGHEST_HZ = 4200.0
"""A telephone's band and a little more: nothing relies on what a small speaker drops."""
LOWEST_BIN = int(LOWEST_HZ / SAMPLE_RATE * N_FFT) - 1
N_BINS = int(HIGHEST_HZ / SAMPLE_RATE * N_FFT) - LOWEST_BIN + 2
"""The spectrogram's first bin and its number of bins, one more on each side than landmarks use."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The landmarks of a sound, ordered by time.

    Attributes:
        frames: float32 ``[P]``, time in frames of `FRAME_S`, with fractions.
        pitches: float32 ``[P]``, log2 of the frequency in Hz.
        prominences: float32 ``[P]``, natural log of magnitude over the level around it.
        n_frames: Length of the sound in frames.
        subfingerprints: uint64 ``[S]``, kept by an index next to the landmarks; see
            `models.fingerprint.subfingerprints`.
    """

    frames: NDArray[np.float32]
    pitches: NDArray[np.float32]
    prominences: NDArray[np.float32]
    n_frames: int
    subfingerprints: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def duration_s(self) -> float:
        """Length of the sound in seconds, within a frame."""
        return self.n_frames * FRAME_S


@dataclass(frozen=True, slots=True)
class CloserLook:
    """The data to look a clip up with if its landmarks leave a doubt.

    Attributes:
        landmarks: The dense landmarks, which include all others.
        evidence: int8 ``[F, N]``, how strongly each bin and frame suggests a landmark there; see
            `models.fingerprint.evidence`.
        changes: float32 ``[M, 64]``, the changes of its bands; see
            `models.fingerprint.band_changes`.
    """

    landmarks: Fingerprint
    evidence: NDArray[np.int8]
    changes: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 64), np.float32))
