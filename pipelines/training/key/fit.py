"""Train the key network: segments in all keys, AdamW over one cycle, averaged weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import mir_eval
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.tonality.keynet import HIDDEN, KeyNetwork, compressed
from pipelines.analysis.tonality.notes import pitch_class
from pipelines.training.clips import UNKNOWN_KEY
from pipelines.training.cycle import Cycle, CyclePlan
from pipelines.training.key.augmentation import augment, in_another_key
from pipelines.training.key.clips import NO_BASS, KeyClip
from pipelines.training.key.recordings import HeardRecording

_HEARD_SHARE = 0.75
"""Share of a batch that comes from recordings, if there are any."""
_BASS_WEIGHT, _KEY_WEIGHT = 0.3, 0.5
_RIGHT, _RELATIVE, _FIFTH, _PARALLEL = 0.9, 0.04, 0.03, 0.03


class KeyBatch(NamedTuple):
    """Segments and their targets.

    Attributes:
        bands: float32 ``[B, N, 180]``.
        pitches: float32 ``[B, N, 12]``, 0 or 1.
        bass: int64 ``[B, N]``, 0 to 12.
        keys: int64 ``[B]``; -1 is unknown.
    """

    bands: Tensor
    pitches: Tensor
    bass: Tensor
    keys: Tensor


class HeardBatch(NamedTuple):
    """Segments of recordings, and the keys found in them.

    Attributes:
        bands: float32 ``[B, N, 180]``.
        keys: float32 ``[B, 24]``, probabilities.
    """

    bands: Tensor
    keys: Tensor


def draw_batch(clips: Sequence[KeyClip], plan: CyclePlan, step: int) -> KeyBatch:
    """Draw segments, which depend only on the clips, the plan and the step."""
    rng = np.random.default_rng([plan.seed, step])
    drawn = [_segment(clips, plan.segment_frames, rng) for _ in range(plan.batch)]
    bands, pitches, bass, keys = zip(*drawn, strict=True)
    return KeyBatch(
        torch.from_numpy(np.stack(bands)),
        torch.from_numpy(np.stack(pitches)).float(),
        torch.from_numpy(np.stack(bass)).long(),
        torch.tensor(keys),
    )


def _segment(
    clips: Sequence[KeyClip], n_frames: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    clip, other = (clips[int(rng.integers(len(clips)))] for _ in range(2))
    bands, at, up = _altered(clip.bands, other.bands, n_frames, rng)
    bass = np.where(clip.bass[at] == NO_BASS, NO_BASS, (clip.bass[at] + up) % 12)
    key = clip.key
    if key != UNKNOWN_KEY:
        key = (key % 12 + up) % 12 + 12 * (key >= 12)
    return bands, np.roll(clip.pitches[at], up, axis=1), bass, key


def _altered(
    bands: NDArray[np.float16], other: NDArray[np.float16], n_frames: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Draw a segment with its own key and sound.

    Returns:
        Its bands ``[n_frames, 180]``, its frames, and by how many semitones it was moved up.
    """
    first = int(rng.integers(max(1, len(bands) - n_frames + 1)))
    # A shorter clip starts again.
    at = (first + np.arange(n_frames)) % len(bands)
    moved, up = in_another_key(bands[at].astype(np.float32), rng)
    faint = other[np.arange(n_frames) % len(other)].astype(np.float32)
    return augment(moved, faint, rng), at, up


class HeardStretches:
    """Stretches of recordings; a recording's weight is the square root of its stretches' number.

    Args:
        recordings: At least one.
    """

    def __init__(self, recordings: Sequence[HeardRecording]) -> None:
        self._bands = [bands for one in recordings for bands in one.bands]
        self._keys = np.concatenate([one.keys for one in recordings])
        weights = np.concatenate(
            [np.full(len(one.keys), len(one.keys) ** -0.5) for one in recordings]
        )
        # Stretches with a doubtful key have little to teach.
        weights *= self._keys.max(axis=1) ** 2
        self._up_to = np.cumsum(weights / weights.sum())

    def draw(self, n: int, plan: CyclePlan, step: int) -> HeardBatch:
        """Draw segments, which depend only on the recordings, the plan and the step."""
        rng = np.random.default_rng([plan.seed, step, n])
        drawn = [self._segment(plan.segment_frames, rng) for _ in range(n)]
        bands, keys = zip(*drawn, strict=True)
        return HeardBatch(torch.from_numpy(np.stack(bands)), torch.from_numpy(np.stack(keys)))

    def _segment(
        self, n_frames: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        this = min(int(np.searchsorted(self._up_to, rng.random())), len(self._bands) - 1)
        other = int(rng.integers(len(self._bands)))
        bands, _, up = _altered(self._bands[this], self._bands[other], n_frames, rng)
        return bands, np.roll(self._keys[this].reshape(2, 12), up, axis=1).reshape(24)


class _Heads(nn.Module):
    """Extra outputs of the trunk in training: the pitch classes and the bass of each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.pitches = nn.Conv2d(HIDDEN, 1, 1)
        self.bass = nn.Conv2d(HIDDEN, 1, 1)
        self.no_bass = nn.Linear(HIDDEN, 1)

    def forward(self, heard: Tensor) -> tuple[Tensor, Tensor]:
        """Map ``[B, 32, 12, N]`` to logits ``[B, N, 12]`` and ``[B, N, 13]``."""
        none = self.no_bass(heard.mean(2).transpose(1, 2))
        bass = torch.cat([self.bass(heard)[:, 0].transpose(1, 2), none], dim=-1)
        return self.pitches(heard)[:, 0].transpose(1, 2), bass


def key_targets() -> Tensor:
    """Return each key's target ``[24, 24]``: most on itself, a little on its neighbours."""
    targets = torch.zeros(24, 24)
    for key in range(24):
        tonic, minor = key % 12, key // 12
        relative = (tonic + (3 if minor else 9)) % 12
        targets[key, key] = _RIGHT
        targets[key, relative + 12 * (1 - minor)] += _RELATIVE
        targets[key, (tonic + 7) % 12 + 12 * minor] += _FIFTH
        targets[key, tonic + 12 * (1 - minor)] += _PARALLEL
    return targets


class KeyTrainer:
    """A run in memory: it takes minutes, so only the result is kept.

    Args:
        plan: The training.
        clips: Clips with known keys.
        recordings: Recordings with found keys, if there are any: three quarters of each batch.
    """

    def __init__(
        self,
        plan: CyclePlan,
        clips: Sequence[KeyClip],
        recordings: Sequence[HeardRecording] = (),
    ) -> None:
        self._n_heard = int(_HEARD_SHARE * plan.batch) if recordings else 0
        self._plan, self._clips = plan, clips
        self._rendered = replace(plan, batch=plan.batch - self._n_heard)
        self._heard = HeardStretches(recordings) if recordings else None
        torch.manual_seed(plan.seed)
        # CPUs convolve fastest in this layout.
        self._network = KeyNetwork().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._heads = _Heads()
        self._averaged = KeyNetwork()
        self._cycle = Cycle(plan, self._network, self._averaged, self._heads.parameters())
        self._targets = key_targets()

    def run(self, told: Callable[[int, float], None]) -> KeyNetwork:
        """Train and return the averaged network; `told` gets each step and its key loss."""
        for step in range(self._plan.steps):
            told(step + 1, self._train_step(step))
        return self._averaged.eval()

    def _train_step(self, step: int) -> float:
        batch = draw_batch(self._clips, self._rendered, step)
        bands = batch.bands
        if self._heard is not None:
            heard_batch = self._heard.draw(self._n_heard, self._plan, step)
            bands = torch.cat([bands, heard_batch.bands])
        self._network.train()
        heard = self._network.trunk(compressed(bands))
        n = self._rendered.batch
        pitches, bass = self._heads(heard[:n])
        keys = self._network.head(heard).log_softmax(-1)
        known = batch.keys != UNKNOWN_KEY
        entropy = -(self._targets[batch.keys[known]] * keys[:n][known]).sum(-1)
        key_loss = entropy.sum() / known.sum().clamp_min(1)
        loss = (
            functional.binary_cross_entropy_with_logits(pitches, batch.pitches)
            + _BASS_WEIGHT * functional.cross_entropy(bass.flatten(0, 1), batch.bass.flatten())
            + _KEY_WEIGHT * key_loss
        )
        if self._heard is not None:
            loss = loss - _KEY_WEIGHT * (heard_batch.keys * keys[n:]).sum(-1).mean()
        self._cycle.step(step, loss)
        return float(key_loss.detach())


def score_clips(network: KeyNetwork, clips: Sequence[KeyClip]) -> float:
    """Return the mean MIREX weighted score over whole clips with a key; NaN if there are none."""
    scores = []
    for clip in clips:
        if clip.key == UNKNOWN_KEY:
            continue
        bands = torch.from_numpy(clip.bands.astype(np.float32))[None]
        with torch.inference_mode():
            logits = network.head(network.trunk(compressed(bands / bands.mean().clamp_min(1e-6))))
        scores.append(_weighted_score(clip.key, int(logits.argmax())))
    return float(np.mean(scores)) if scores else math.nan


def _weighted_score(truth: int, found: int) -> float:
    names = [
        f"{pitch_class(key % 12)} {'minor' if key >= 12 else 'major'}" for key in (truth, found)
    ]
    return float(mir_eval.key.weighted_score(*names))
