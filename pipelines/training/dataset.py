"""Rendered clips in memory, and batches of segments drawn from them.

A batch depends only on the clips, the seed and the step, so a resumed run draws what it would have
drawn without the stop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.rhythm.network import FRAME_RATE, N_BANDS
from pipelines.training.augmentation import augment
from pipelines.training.clips import Clip
from pipelines.training.plan import FitPlan, PlanError
from pipelines.training.targets import pulse_target, tempo_target

_STRETCH = 0.26
"""Maximum logarithm of the factor by which a segment is slowed down or sped up."""
_STRETCHED = 0.6
_FROM_THE_START = 0.35
"""Share of segments that begin with their clip: how music begins reveals much about its bars."""
_HASH = 2_654_435_761


class Batch(NamedTuple):
    """Segments and their targets.

    Attributes:
        features: float32 ``[B, N, 83]``.
        beats: float32 ``[B, N]``, 0 to 1.
        downbeats: float32 ``[B, N]``, 0 to 1.
        tempi: float32 ``[B, ⌈N / 50⌉, 64]``; rows of zeros are unknown.
        heard: float32 ``[B, N]``: 1 inside the clip.
    """

    features: Tensor
    beats: Tensor
    downbeats: Tensor
    tempi: Tensor
    heard: Tensor


@dataclass(frozen=True, slots=True)
class ClipSet:
    """Clips and the kind of each."""

    clips: Sequence[Clip]
    kinds: Sequence[str]

    @property
    def hours(self) -> float:
        """Length of the audio."""
        return sum(len(clip.bands) for clip in self.clips) / FRAME_RATE / 3600


def load_clips(folder: Path, prefix: str = "") -> dict[int, tuple[str, Clip]]:
    """Read the clips of a folder whose names begin with `prefix`: seed → (kind, clip)."""
    found = {}
    for path in sorted(folder.glob(f"{prefix}*.npz")):
        kind, _, seed = path.stem.rpartition("_")
        is_whole = not path.name.endswith(".part.npz")
        if is_whole and (prefix or not kind.startswith("held_out")):
            found[int(seed)] = (kind.removeprefix(prefix), Clip.load(path))
    return found


def split(
    clips: Mapping[int, tuple[str, Clip]], validation_every: int, fraction: float = 1.0
) -> tuple[ClipSet, ClipSet]:
    """Split clips into training and validation by their seeds; a fraction of the former is kept.

    Smaller fractions are subsets of larger ones.
    """
    chosen: tuple[list[int], list[int]] = ([], [])
    for seed in sorted(clips):
        if seed % validation_every == 0:
            chosen[1].append(seed)
        elif seed * _HASH % 1000 / 1000 < fraction:
            chosen[0].append(seed)
    training, validation = (
        ClipSet([clips[seed][1] for seed in seeds], [clips[seed][0] for seed in seeds])
        for seeds in chosen
    )
    return training, validation


class Sampler:
    """Draws augmented batches.

    Raises:
        PlanError: No clip has a kind with a share.
    """

    def __init__(self, clips: ClipSet, plan: FitPlan, shares: Mapping[str, float]) -> None:
        if not clips.clips:
            raise ValueError("there are no clips to train on")
        self._clips, self._plan = clips.clips, plan
        weights = np.array(
            [shares.get(kind, 0.0) / clips.kinds.count(kind) for kind in clips.kinds]
        )
        if not weights.any():
            raise PlanError(f"fit.shares has none of the clips' kinds: {sorted(set(clips.kinds))}")
        self._weights = np.cumsum(weights / weights.sum())

    def batch(self, step: int) -> Batch:
        """Draw the batch of a step."""
        rng = np.random.default_rng([self._plan.seed, step])
        rows = [self._segment(rng) for _ in range(self._plan.batch)]
        bands, beats, downbeats, tempi, heard = (
            torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)
        )
        features = augment(bands, heard, rng, self._plan.mixup)
        return Batch(features, beats, downbeats, tempi, heard)

    def _segment(self, rng: np.random.Generator) -> tuple[NDArray[np.float32], ...]:
        n = self._plan.segment_frames
        place = int(np.searchsorted(self._weights, rng.random()))
        clip = self._clips[min(place, len(self._clips) - 1)]
        slower = float(np.exp(rng.uniform(-_STRETCH, _STRETCH)))
        if rng.random() >= _STRETCHED:
            slower = 1.0
        length = int(n / slower) + 2
        start = int(rng.integers(0, max(1, len(clip.bands) - length - 1)))
        if rng.random() < _FROM_THE_START:
            start = 0
        bands, n_heard = stretched(clip.bands[start : start + length], slower, n)
        beats = (clip.beats - start / FRAME_RATE) * slower
        downbeats = (clip.downbeats - start / FRAME_RATE) * slower
        heard = np.zeros(n, dtype=np.float32)
        heard[:n_heard] = 1.0
        return (
            bands,
            pulse_target(beats, n, self._plan.neighbour),
            pulse_target(downbeats, n, self._plan.neighbour),
            tempo_target(beats, n),
            heard,
        )


def stretched(
    bands: NDArray[np.float16], slower: float, n_frames: int
) -> tuple[NDArray[np.float32], int]:
    """Slow ``[M, 83]`` down by a factor; return ``[N, 83]`` and the number of filled frames."""
    out = np.zeros((n_frames, N_BANDS), dtype=np.float32)
    if slower == 1.0:
        part = bands[:n_frames]
        out[: len(part)] = part
        return out, len(part)
    at = np.arange(n_frames) / slower
    at = at[at < len(bands) - 1]
    whole = at.astype(np.int64)
    weight = (at - whole)[:, None].astype(np.float32)
    source = bands.astype(np.float32)
    out[: len(at)] = source[whole] * (1 - weight) + source[whole + 1] * weight
    return out, len(at)
