"""Draw damaged passages of tracks, and places of true and false landmarks in them.

Invariant: a draw depends only on the tracks and the random number generator.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.fingerprint.landmarks import (
    HOP_LENGTH,
    LOWEST_BIN,
    N_BINS,
    N_FFT,
    SAMPLE_RATE,
    Fingerprint,
)
from pipelines.training.cycle import CyclePlan
from pipelines.training.embedding.alter import at_speed
from pipelines.training.landmarks.damage import Mono, damage
from pipelines.training.landmarks.tracks import LandmarkTrack
from pipelines.training.plan import PlanError

FASTEST = 0.04
"""Largest change of speed, as by turntables and radio stations."""
FEWEST_LANDMARKS = 8
"""A passage with fewer is useless."""

_AT_SPEED = 0.3
_SPARE = 64
"""Samples that the rate conversion may cut off."""
_NEAREST, _FARTHEST = 14, 150
"""Shifts in frames, 0.3 to 3.5 s: no longer the same place, but still the same music."""
_TRUE, _SHIFTED, _FAR = 1.0, 0.7, 0.3
"""Weights in the loss. Another track is easier to distinguish than another place in this one."""


class Passage(NamedTuple):
    """A damaged passage of a track.

    Attributes:
        samples: float32 ``[T]`` at `SAMPLE_RATE`.
        landmarks: Landmarks of the whole clean track.
        offset: The track's frame at which the passage begins.
        speed: Factor by which it plays faster.
        far: Landmarks of another track.
    """

    samples: Mono
    landmarks: Fingerprint
    offset: float
    speed: float
    far: Fingerprint


class Passages:
    """Draws passages of some tracks.

    Args:
        tracks: Only those that are loud enough for long enough are used.
        n_frames: Frames of a passage.

    Raises:
        PlanError: None of them is.
    """

    def __init__(self, tracks: Sequence[LandmarkTrack], n_frames: int) -> None:
        self.n_frames = n_frames
        self._length = N_FFT + HOP_LENGTH * (n_frames - 1)
        self._taken = math.ceil(self._length * (1 + FASTEST)) + _SPARE
        starts = [track.loud_starts(self._taken + HOP_LENGTH) for track in tracks]
        self._tracks = [(t, s) for t, s in zip(tracks, starts, strict=True) if len(s)]
        if not self._tracks:
            raise PlanError(f"no track has a passage of {n_frames} frames that is loud enough")

    def __len__(self) -> int:
        return len(self._tracks)

    def draw(self, i: int, rng: np.random.Generator) -> Passage:
        """Draw a passage of the i-th track, and damage it."""
        n = len(self._tracks)
        track, starts = self._tracks[i]
        far, far_starts = self._tracks[(i + int(rng.integers(1, max(2, n)))) % n]
        start = int(rng.choice(starts) + rng.integers(HOP_LENGTH))
        samples = track.stretch(start, self._taken)
        speed = rng.uniform(-FASTEST, FASTEST) if rng.random() < _AT_SPEED else 0.0
        if speed:
            samples = at_speed(samples, 1 + speed)
        other = far.stretch(int(rng.choice(far_starts)), self._length)
        damaged = damage(samples[: self._length], other, rng)
        return Passage(damaged, track.landmarks, start / HOP_LENGTH, speed, far.landmarks)


def places(
    landmarks: Fingerprint, offset: float, speed: float, n_frames: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where a passage's landmarks lie in a clip of it.

    Args:
        landmarks: Landmarks of the track.
        offset: The track's frame at which the clip begins.
        speed: Factor by which it plays faster.
        n_frames: Frames of the clip.

    Returns:
        Bins from `LOWEST_BIN` on, and frames, int64 ``[P]`` each.
    """
    ends = (offset - 1, offset + n_frames * (1 + speed) + 1)
    first, last = np.searchsorted(landmarks.frames, ends)
    frames = np.rint((landmarks.frames[first:last] - offset) / (1 + speed)).astype(np.int64)
    hz = np.exp2(landmarks.pitches[first:last].astype(np.float64)) * (1 + speed)
    bins = np.rint(hz * (N_FFT / SAMPLE_RATE)).astype(np.int64) - LOWEST_BIN
    inside = (frames >= 0) & (frames < n_frames) & (bins >= 0) & (bins < N_BINS)
    return bins[inside], frames[inside]


class Batch(NamedTuple):
    """Passages, and places of true and false landmarks in them.

    Attributes:
        samples: float32 ``[B, T]``.
        where: int64 ``[3, P]``: passage, bin and frame of each landmark.
        targets: float32 ``[P]``: 1 for a landmark of the passage, 0 for one from elsewhere.
        weights: float32 ``[P]``, with sum 1: a passage's landmarks share its weight.
    """

    samples: Tensor
    where: Tensor
    targets: Tensor
    weights: Tensor


def draw_batch(passages: Passages, plan: CyclePlan, step: int) -> Batch:
    """Draw passages, which depend only on the tracks, the plan's seed and batch, and the step."""
    rng = np.random.default_rng([plan.seed, step])
    samples: list[Mono] = []
    claims: list[NDArray[np.float64]] = []
    for row in range(plan.batch):
        passage = passages.draw(int(rng.integers(len(passages))), rng)
        samples.append(passage.samples)
        shift = rng.choice([-1, 1]) * rng.uniform(_NEAREST, _FARTHEST)
        elsewhere = rng.uniform(0, max(1, passage.far.n_frames - passages.n_frames))
        for target, weight, landmarks, offset in (
            (1, _TRUE, passage.landmarks, passage.offset),
            (0, _SHIFTED, passage.landmarks, passage.offset + shift),
            (0, _FAR, passage.far, elsewhere),
        ):
            bins, frames = places(landmarks, offset, passage.speed, passages.n_frames)
            if len(bins) >= FEWEST_LANDMARKS:
                rows, targets = np.full_like(bins, row), np.full_like(bins, target)
                weights = np.full(len(bins), weight / len(bins))
                claims.append(np.stack([rows, bins, frames, targets, weights]))
    said = torch.from_numpy(np.concatenate(claims, axis=1))
    return Batch(
        torch.from_numpy(np.stack(samples)),
        said[:3].long(),
        said[3].float(),
        (said[4] / said[4].sum()).float(),
    )
