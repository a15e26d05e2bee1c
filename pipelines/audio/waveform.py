"""Decoded audio, and everything that can be wrong with audio.

AudioError
├── UndecodableAudioError     not audio, corrupt, or a container that is not accepted
├── AudioTooLongError         longer than the caller's limit
└── AudioTooShortError        shorter than the operation needs
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.floating[Any]]
"""Samples of a decoded track: float32, or float16 if it is long."""

SAMPLE_RATE = 44_100
"""Hz at which audio is decoded, once; every model resamples from it."""


class AudioError(Exception):
    """A fault of the audio itself: never retried, always for the caller to fix."""

    code = "unprocessable_audio"


class UndecodableAudioError(AudioError):
    """The bytes contain no audio that can be decoded."""


class AudioTooLongError(AudioError):
    """The audio is longer than the limit."""

    code = "audio_too_long"


class AudioTooShortError(AudioError):
    """The audio is shorter than the operation needs."""

    code = "audio_too_short"


@dataclass(frozen=True, slots=True)
class Waveform:
    """Decoded audio.

    Attributes:
        samples: ``[C, T]``, C = 1 or 2, finite, full scale ±1 (lossy codecs may exceed it).
            float32, or float16 if the track is long.
        sample_rate: Hz.
    """

    samples: Samples
    sample_rate: int = SAMPLE_RATE

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return float(self.samples.shape[1]) / self.sample_rate

    def mono(self) -> NDArray[np.float32]:
        """Mean of the channels, float32 ``[T]``."""
        if self.samples.shape[0] == 1:
            only: NDArray[np.float32] = self.samples[0].astype(np.float32, copy=False)
            return only
        left, right = self.samples  # mean() takes three times as long
        mean: NDArray[np.float32] = np.add(left, right, dtype=np.float32)
        mean *= np.float32(0.5)
        return mean
