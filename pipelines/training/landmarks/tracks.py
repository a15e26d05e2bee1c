"""Music without labels: the beginning of each file, and its clean landmarks."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import HOP_LENGTH, SAMPLE_RATE, Fingerprint
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from pipelines.training.kept import reading
from pipelines.training.recordings import decode_beginning

LONGEST_S = 120.0
"""This much of a file is used: later on, most music repeats itself."""
SHORTEST_S = 15.0
"""A passage of 5 s, and as much on either side to compare it with."""
QUIETEST = 10 ** (-50 / 20)
"""Root mean square, relative to full scale. Anything quieter is a fade or dither."""

_FULL_SCALE = 1 << 15


@dataclass(frozen=True, slots=True)
class LandmarkTrack:
    """A track and its landmarks.

    Attributes:
        samples: int16 ``[T]``, mono at `SAMPLE_RATE`.
        landmarks: The usual landmarks of the clean track.
    """

    samples: NDArray[np.int16]
    landmarks: Fingerprint

    def stretch(self, start: int, length: int) -> NDArray[np.float32]:
        """Return a stretch of samples, float32 ``[length]``, full scale ±1."""
        return np.divide(self.samples[start : start + length], _FULL_SCALE, dtype=np.float32)

    def loud_starts(self, length: int) -> NDArray[np.int64]:
        """Return the starts, a frame apart, of stretches of ``length`` samples with enough sound.

        Returns:
            int64 ``[S]``, in samples; empty for a track that is shorter, or silent.
        """
        energy = np.append(0.0, np.cumsum(np.square(self.samples, dtype=np.float64)))
        starts = np.arange(0, len(self.samples) - length + 1, HOP_LENGTH)
        power = (energy[starts + length] - energy[starts]) / length
        loud: NDArray[np.int64] = starts[power >= (QUIETEST * _FULL_SCALE) ** 2]
        return loud

    def save(self, path: Path) -> None:
        """Write the track; the file appears whole or not at all."""
        part = path.with_suffix(".part.npz")
        found = self.landmarks
        np.savez(
            part,
            samples=self.samples,
            landmarks=np.stack([found.frames, found.pitches, found.prominences]),
            n_frames=found.n_frames,
        )
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "LandmarkTrack":
        """Read what `save` wrote; raises as `pipelines.training.kept.reading`."""
        with reading(path) as file, np.load(file) as content:
            frames, pitches, prominences = content["landmarks"]
            landmarks = Fingerprint(frames, pitches, prominences, int(content["n_frames"]))
            return cls(content["samples"], landmarks)


def read_track(source: Path, fingerprinter: Fingerprinter) -> LandmarkTrack | None:
    """Decode a file's first `LONGEST_S` and find their landmarks; None if it is not music."""
    mono = decode_beginning(source, LONGEST_S, SAMPLE_RATE)
    if mono is None:
        return None
    (landmarks,) = fingerprinter.make_landmarks([Waveform(mono[None], SAMPLE_RATE)])
    most = _FULL_SCALE - 1
    samples = np.rint(np.clip(mono * _FULL_SCALE, -most, most)).astype(np.int16)
    track = LandmarkTrack(samples, landmarks)
    is_music = len(track.loud_starts(round(SHORTEST_S * SAMPLE_RATE))) > 0
    return track if is_music else None


def split_tracks(kept: Iterable[Path], validation_every: int) -> tuple[list[Path], list[Path]]:
    """Split kept tracks, without duplicates, into training and every n-th for validation."""
    paths = sorted(set(kept))
    validation = paths[::validation_every]
    return [path for path in paths if path not in set(validation)], validation
