"""What a fingerprint is: landmarks on a grid of frames, in plain arrays that cross processes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MODEL_ID = "afa-landmarks-2"
"""Changes with whatever makes new landmarks or hashes unlike old ones."""
SAMPLE_RATE = 11_025
"""Hz. Landmarks end at 4.2 kHz, so nothing above 5.5 kHz is needed."""
N_FFT = 1024
HOP_LENGTH = 256
FRAME_S = HOP_LENGTH / SAMPLE_RATE
"""Seconds in a frame, the unit of all fingerprint times: 23.2 ms."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The landmarks of a sound, ordered by time.

    Attributes:
        frames: float32 ``[P]``, time in frames of `FRAME_S`, with fractions.
        pitches: float32 ``[P]``, log2 of the frequency in Hz.
        prominences: float32 ``[P]``, natural log of magnitude over the level around it.
        n_frames: Length of the sound in frames.
    """

    frames: NDArray[np.float32]
    pitches: NDArray[np.float32]
    prominences: NDArray[np.float32]
    n_frames: int

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def duration_s(self) -> float:
        """Length of the sound in seconds, within a frame."""
        return self.n_frames * FRAME_S
