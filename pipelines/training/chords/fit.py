"""Train the chord network on rendered music and recordings: segments in all keys, one cycle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from models.tonality.chordnet import N_CHORDS, NO_CHORD, ChordNetwork
from pipelines.training.chords.clips import ROOT_ONLY, UNKNOWN_CHORD, ChordClip
from pipelines.training.cycle import Cycle, CyclePlan
from pipelines.training.key.augmentation import augment, in_another_key
from pipelines.training.key.clips import NO_BASS

if TYPE_CHECKING:
    from pipelines.training.chords.recordings import TaughtRecording

_TAUGHT_SHARE = 0.5
"""Share of a batch that comes from recordings, if there are any."""
_BASS_WEIGHT, _PITCH_WEIGHT = 0.3, 0.3
_HURRIES = (1, 1, 1, 2, 3)
"""Only every n-th frame is used: chords of bars become chords of beats, as in chorales."""
_LEVELS = (2.0, 40.0)
"""Range of the bands' means for music with a peak of 1."""


class ChordBatch(NamedTuple):
    """Segments and their targets.

    Attributes:
        bands: float32 ``[B, N, 180]``.
        pitches: float32 ``[B, N, 12]``, 0 or 1.
        bass: int64 ``[B, N]``, 0 to 12.
        chords: int64 ``[B, N]``, as in `ChordClip`.
    """

    bands: Tensor
    pitches: Tensor
    bass: Tensor
    chords: Tensor


class TaughtBatch(NamedTuple):
    """Segments of recordings, and the teacher's output for them.

    Attributes:
        bands: float32 ``[B, N, 180]``.
        chords: float32 ``[B, N, 37]``, see `pipelines.training.chords.teacher.TaughtChords`.
        basses: float32 ``[B, N, 13]``.
    """

    bands: Tensor
    chords: Tensor
    basses: Tensor


def draw_batch(clips: Sequence[ChordClip], plan: CyclePlan, step: int) -> ChordBatch:
    """Draw segments, which depend only on the clips, the plan and the step."""
    rng = np.random.default_rng([plan.seed, step])
    drawn = [_segment(clips, plan.segment_frames, rng) for _ in range(plan.batch)]
    bands, pitches, bass, chords = (np.stack(part) for part in zip(*drawn, strict=True))
    return ChordBatch(
        torch.from_numpy(bands),
        torch.from_numpy(pitches).float(),
        torch.from_numpy(bass).long(),
        torch.from_numpy(chords).long(),
    )


def _segment(
    clips: Sequence[ChordClip], n_frames: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    clip, other = (clips[int(rng.integers(len(clips)))] for _ in range(2))
    bands, at, up = _altered(clip.bands, other.bands, n_frames, rng)
    bass = np.where(clip.bass[at] == NO_BASS, NO_BASS, (clip.bass[at] + up) % 12)
    return (
        bands,
        np.roll(clip.pitches[at], up, axis=1),
        bass.astype(np.int64),
        moved(clip.chords[at], up),
    )


def _altered(
    bands: NDArray[np.float16], other: NDArray[np.float16], n_frames: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Draw a segment with its own key, sound, level and pace.

    Returns:
        Its bands ``[n_frames, 180]``, its frames, and by how many semitones it was moved up.
    """
    hurry = int(rng.choice(_HURRIES))
    first = int(rng.integers(max(1, len(bands) - hurry * n_frames + 1)))
    # A shorter clip starts again.
    at = (first + hurry * np.arange(n_frames)) % len(bands)
    in_key, up = in_another_key(bands[at].astype(np.float32), rng)
    faint = other[np.arange(n_frames) % len(other)].astype(np.float32)
    level = np.float32(np.exp(rng.uniform(*np.log(_LEVELS))))
    return level * augment(in_key, faint, rng), at, up


def draw_taught(
    recordings: Sequence["TaughtRecording"], n: int, plan: CyclePlan, step: int
) -> TaughtBatch:
    """Draw n segments of recordings, which depend only on these, the plan and the step."""
    rng = np.random.default_rng([plan.seed, step, n])
    drawn = []
    for _ in range(n):
        this, other = (recordings[int(rng.integers(len(recordings)))] for _ in range(2))
        bands, at, up = _altered(this.bands, other.bands, plan.segment_frames, rng)
        chords, basses = (
            _rolled(taught[at].astype(np.float32), up) for taught in (this.chords, this.basses)
        )
        drawn.append((bands, chords, basses))
    return TaughtBatch(*(torch.from_numpy(np.stack(part)) for part in zip(*drawn, strict=True)))


def _rolled(taught: NDArray[np.float32], up: int) -> NDArray[np.float32]:
    """Transpose probabilities ``[N, 12 k + 1]`` by semitones, except the last one, "none"."""
    rooted = taught[:, :-1].reshape(len(taught), -1, 12)
    rolled = np.roll(rooted, up, axis=2).reshape(len(taught), -1)
    return np.concatenate([rolled, taught[:, -1:]], axis=1)


def moved(chords: NDArray[np.int8], up: int) -> NDArray[np.int64]:
    """Transpose chords of `ChordClip` by semitones."""
    base = np.where(chords >= ROOT_ONLY, ROOT_ONLY, np.where(chords >= 12, 12, 0))
    is_rooted = (chords != NO_CHORD) & (chords != UNKNOWN_CHORD)
    return np.where(is_rooted, base + (chords - base + up) % 12, chords).astype(np.int64)


def chord_loss(logits: Tensor, chords: Tensor) -> Tensor:
    """Return the mean loss of logits ``[…, 25]`` against ``[…]``; a root alone may be either chord.

    Unknown chords do not count.
    """
    rows, truth = logits.log_softmax(-1).flatten(0, -2), chords.flatten()
    known = truth != UNKNOWN_CHORD
    rows, truth = rows[known], truth[known]
    is_root = truth >= N_CHORDS
    first = torch.where(is_root, truth - ROOT_ONLY, truth)[:, None]
    second = torch.where(is_root, truth - ROOT_ONLY + 12, truth)[:, None]
    either = torch.logaddexp(rows.gather(1, first), rows.gather(1, second))[:, 0]
    # A known chord is added twice.
    gained = torch.where(is_root, either, either - np.log(2.0))
    return -gained.sum() / known.sum().clamp_min(1)


def taught_loss(logits: Tensor, taught: Tensor) -> Tensor:
    """Return the mean loss of logits ``[…, 25]`` against the teacher's ``[…, 37]``."""
    rows = logits.log_softmax(-1)
    either = torch.logaddexp(rows[..., :12], rows[..., 12:24]) - np.log(2.0)
    told = torch.cat([rows[..., :NO_CHORD], either, rows[..., NO_CHORD:]], dim=-1)
    return -(taught * told).sum(-1).mean()


class ChordTrainer:
    """A run in memory: it takes minutes, so only the result is kept.

    Args:
        plan: The training.
        clips: Clips with known chords.
        trunk: Tensors of a key network, whose trunk this one starts from.
        recordings: Recordings with the teacher's chords, if there are any: half of each batch.
    """

    def __init__(
        self,
        plan: CyclePlan,
        clips: Sequence[ChordClip],
        trunk: Mapping[str, Tensor],
        recordings: Sequence["TaughtRecording"] = (),
    ) -> None:
        self._n_taught = int(_TAUGHT_SHARE * plan.batch) if recordings else 0
        self._plan, self._clips, self._recordings = plan, clips, recordings
        self._rendered = replace(plan, batch=plan.batch - self._n_taught)
        torch.manual_seed(plan.seed)
        self._network, self._averaged = ChordNetwork(), ChordNetwork()
        begun = {name: rows for name, rows in trunk.items() if name.startswith("trunk.")}
        self._network.load_state_dict(begun, strict=False)
        # CPUs convolve fastest in this layout.
        self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._cycle = Cycle(plan, self._network, self._averaged)

    def run(self, told: Callable[[int, float], None]) -> ChordNetwork:
        """Train and return the averaged network; `told` gets each step and its chord loss."""
        for step in range(self._plan.steps):
            told(step + 1, self._train_step(step))
        return self._averaged.eval()

    def _train_step(self, step: int) -> float:
        batch = draw_batch(self._clips, self._rendered, step)
        bands, n = batch.bands, self._rendered.batch
        if self._n_taught:
            taught = draw_taught(self._recordings, self._n_taught, self._plan, step)
            bands = torch.cat([bands, taught.bands])
        self._network.train()
        chords, basses, sounding = self._network.logits(bands)
        chord = chord_loss(chords[:n], batch.chords)
        bass = functional.cross_entropy(basses[:n].flatten(0, 1), batch.bass.flatten())
        pitch = functional.binary_cross_entropy_with_logits(sounding[:n], batch.pitches)
        loss = chord + _BASS_WEIGHT * bass + _PITCH_WEIGHT * pitch
        if self._n_taught:
            taught_bass = -(taught.basses * basses[n:].log_softmax(-1)).sum(-1).mean()
            loss = loss + taught_loss(chords[n:], taught.chords) + _BASS_WEIGHT * taught_bass
        self._cycle.step(step, loss)
        return float(chord.detach())


def score_clips(network: ChordNetwork, clips: Sequence[ChordClip]) -> float:
    """Return the share of frames with a known chord that the network gets right."""
    right, known = 0, 0
    for clip in clips:
        with torch.inference_mode():
            chords, _, _ = network.logits(torch.from_numpy(clip.bands.astype(np.float32))[None])
        sure = (clip.chords >= 0) & (clip.chords < ROOT_ONLY)
        right += int((chords[0].argmax(-1).numpy() == clip.chords)[sure].sum())
        known += int(sure.sum())
    return right / max(1, known)
