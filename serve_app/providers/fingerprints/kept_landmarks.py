"""The landmarks of a segment's tracks, three bytes each, for examining one passage of one track.

They are in order of time in blocks of `BLOCK_FRAMES` of the timeline. A track begins a block.

Files: ``block_starts.npy`` (uint32 ``[blocks + 1]``), ``landmark_frames.npy`` (uint8 ``[L]``, from
the block's beginning) and ``landmark_bins.npy`` (uint16 ``[L]``, bins of the spectrogram times
`STEPS_PER_BIN`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import N_FFT, SAMPLE_RATE, Fingerprint
from serve_app.providers.fingerprints.mapped import map_array, new_array, save_array

BLOCK_FRAMES = 256
STEPS_PER_BIN = 128


@dataclass(frozen=True, slots=True)
class LandmarkBlocks:
    """Landmarks of one track, or of several in a row.

    Attributes:
        counts: int64 ``[blocks]``, the number in each block.
        frames: uint8 ``[L]``.
        bins: uint16 ``[L]``.
    """

    counts: NDArray[np.int64]
    frames: NDArray[np.uint8]
    bins: NDArray[np.uint16]


def to_blocks(fingerprint: Fingerprint, n_frames: int) -> LandmarkBlocks:
    """Pack a track's landmarks into the blocks of ``n_frames``, which is a multiple of a block."""
    frames = np.clip(np.rint(fingerprint.frames), 0, n_frames - 1).astype(np.int64)
    bins = np.exp2(fingerprint.pitches.astype(np.float64)) * (N_FFT / SAMPLE_RATE)
    return LandmarkBlocks(
        np.bincount(frames // BLOCK_FRAMES, minlength=n_frames // BLOCK_FRAMES),
        (frames % BLOCK_FRAMES).astype(np.uint8),
        np.rint(bins * STEPS_PER_BIN).astype(np.uint16),
    )


class KeptLandmarks:
    """Reads landmarks, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self._starts, self.directory = map_array(folder, "block_starts")
        self._frames, frame_pages = map_array(folder, "landmark_frames")
        self._bins, bin_pages = map_array(folder, "landmark_bins")
        self.landmark_pages = (frame_pages, bin_pages)

    def blocks(self, begin: int, end: int) -> LandmarkBlocks:
        """Return the landmarks of some frames of the timeline, both multiples of a block.

        Raises:
            ValueError: Where the blocks begin is not as it was written.
        """
        starts = self._starts[begin // BLOCK_FRAMES : end // BLOCK_FRAMES + 1].astype(np.int64)
        if (np.diff(starts) < 0).any() or starts[-1] > len(self._frames):
            raise ValueError("block_starts.npy leads nowhere")
        mine = slice(int(starts[0]), int(starts[-1]))
        return LandmarkBlocks(np.diff(starts), self._frames[mine], self._bins[mine])

    def around(self, begin: float, end: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the blocks' landmarks from one place on the timeline to another.

        Returns:
            Their frames on the timeline, and their bins, of the same length.
        """
        first = max(int(begin) // BLOCK_FRAMES, 0)
        last = min(int(end) // BLOCK_FRAMES + 1, len(self._starts) - 1)
        if last <= first:
            return np.zeros(0, np.int64), np.zeros(0)
        found = self.blocks(first * BLOCK_FRAMES, last * BLOCK_FRAMES)
        block = np.repeat(np.arange(first, last) * BLOCK_FRAMES, found.counts)
        return block + found.frames, found.bins / STEPS_PER_BIN


def write_landmarks(folder: Path, n_landmarks: int, parts: Iterable[LandmarkBlocks]) -> None:
    """Write ``n_landmarks`` landmarks, part by part in the order of the timeline."""
    starts = [np.zeros(1, np.int64)]
    frames = new_array(folder / "landmark_frames.npy", np.uint8, n_landmarks)
    bins = new_array(folder / "landmark_bins.npy", np.uint16, n_landmarks)
    place = 0
    for part in parts:
        mine = slice(place, place + len(part.frames))
        frames[mine], bins[mine] = part.frames, part.bins
        starts.append(place + np.cumsum(part.counts))
        place = mine.stop
    save_array(folder / "block_starts.npy", np.concatenate(starts).astype(np.uint32))
