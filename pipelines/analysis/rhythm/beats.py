"""The beat networks as windowed models: afa's own and BeatNet behind one interface."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.checkpoints.cards import CardError, ModelCard
from models.rhythm.beatnet import HOP_LENGTH, SAMPLE_RATE, BeatEnsemble
from models.rhythm.decoder import FRAME_RATE, BeatSpace, grid_likelihood, upsample
from models.rhythm.harmony import chord_novelty, standardised
from models.rhythm.network import FRAME_RATE as NETWORK_RATE
from models.rhythm.network import TEMPO_STRIDE
from models.rhythm.tracker import TRIM_FRAMES, BeatTracker
from pipelines.analysis.networks.checkpoint_model import build_own
from pipelines.analysis.tonality.chords import ChordEvidence
from pipelines.batching.framed import FrameGrid
from pipelines.batching.windows import LazyWindows, Windows

_NEW_FRAMES = 6000
"""New frames (two minutes) in each window of afa's own network."""
_BEATNET_FRAMES = 1600
"""32 s, the length of every forward of BeatNet."""
_BEATNET_WARM_UP = 198
"""4 s, in which its recurrent state settles (a longer warm-up moves no beat)."""
_BEATNET_TAIL = 2  # The last frames' FFTs reach over the window's end.

ATTACK_S = 0.03
"""Time from a beat to the sound that begins with it."""
_STRESS = 0.6
_ABOUT = 1.1
"""Tempi within this ratio of each other count as one."""


@dataclass(frozen=True)
class BeatEvidence:
    """Evidence of a track's beats.

    Attributes:
        activations: float32 ``[N, 2]``, 50 frames a second, 0 to 1: probability of a beat that is
            not a downbeat, and of a downbeat.
        tempo: float32 ``[M, 64]``, one row a second, logits over
            `models.rhythm.network.TEMPI`; None from a network without that output.
        chords: Evidence of the chords, if any: chords change on beats.
    """

    activations: NDArray[np.float32]
    tempo: NDArray[np.float32] | None = None
    chords: ChordEvidence | None = None
    _likelihoods: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def is_told(self) -> NDArray[np.bool_]:
        """Whether the network reports anything for a frame, ``[N]``; in a pause it does not."""
        return np.asarray(self.activations.any(axis=1))

    @cached_property
    def told_tempo(self) -> NDArray[np.float32] | None:
        """`tempo` without the pauses, for which the network only reports what is usual."""
        if self.tempo is None:
            return None
        starts = np.arange(len(self.tempo)) * TEMPO_STRIDE
        is_told = np.logical_or.reduceat(self.is_told, starts)
        return self.tempo[is_told] if is_told.any() else self.tempo

    @cached_property
    def changes_per_second(self) -> float:
        """Chord changes per second outside pauses; 0 if there are none."""
        if self.chords is None or not self.is_told.any():
            return 0.0
        return self.chords.changes_per_second / float(self.is_told.mean())

    @cached_property
    def fine(self) -> NDArray[np.float32]:
        """The activations at the decoder's rate, ``[2 N, 2]``."""
        return upsample(self.activations.T, round(FRAME_RATE / NETWORK_RATE)).T

    @cached_property
    def pulse(self) -> NDArray[np.float32]:
        """Probability of a beat of any kind, at the decoder's rate, ``[2 N]``."""
        return np.asarray(self.fine.sum(axis=1))

    @cached_property
    def stressed(self) -> NDArray[np.float32]:
        """`pulse`, stronger where a chord begins and weaker where none does.

        It helps to choose among grids of one tempo, but not to choose the tempo: if a chord begins
        on every other beat, the beats in between are weaker.
        """
        if self.chords is None:
            return self.pulse
        times = np.arange(len(self.pulse)) / FRAME_RATE + ATTACK_S
        novelty = chord_novelty(self.chords.probabilities, self.chords.times_s, times)
        stress = np.exp(_STRESS * standardised(novelty))
        return np.minimum(self.pulse * stress, 1.0).astype(np.float32)

    def likelihood(self, tempo: float) -> float:
        """Log-likelihood per second of the best beats within a tenth of a tempo in BPM.

        It takes 10 ms of processor time for a track of three minutes, so it is cached: tempi that
        differ by less than a frame share a value.
        """
        space = BeatSpace(tempo / _ABOUT, tempo * _ABOUT)
        periods = int(space.periods[0]), int(space.periods[-1])
        if periods not in self._likelihoods:
            self._likelihoods[periods] = grid_likelihood(self.pulse, space)
        return self._likelihoods[periods]


class BeatModel:
    """A beat network on its grid of windows.

    Outputs ``activations [B, n_frames, 2]`` and, from afa's own network, ``tempo [B, n_frames / 50,
    64]``.
    """

    def __init__(
        self, model_id: str, network: BeatTracker | BeatEnsemble, device: torch.device
    ) -> None:
        self.model_id = model_id
        self._device = device
        self._tracker = network if isinstance(network, BeatTracker) else None
        lead, tail, n_frames = _BEATNET_WARM_UP, _BEATNET_TAIL, _BEATNET_FRAMES
        if self._tracker:
            # Whole rows of tempo evidence, too.
            lead = tail = -(-self._tracker.receptive_frames // TEMPO_STRIDE) * TEMPO_STRIDE
            n_frames = lead + _NEW_FRAMES + tail
        trim = TRIM_FRAMES if self._tracker else 0
        self.grid = FrameGrid(SAMPLE_RATE, HOP_LENGTH, n_frames, lead, tail, trim=trim)
        self.spec = self.grid.spec
        self._network = network.to(device).requires_grad_(False)

    def windows(self, samples: Tensor, n_samples: int | None = None) -> Windows:
        """Cut ``[T]`` into windows, each scaled to the level that the network wants when read.

        Args:
            samples: The track, with or without trailing zeros.
            n_samples: Length of the track without them; all of ``samples`` when None.
        """
        n = samples.shape[-1] if n_samples is None else n_samples
        windows = self.grid.windows(samples, n)
        if self._tracker is None:
            return windows
        level = self._tracker.level(samples[:n])
        return LazyWindows(windows.shape, windows.dtype, lambda part: windows[part] / level)

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        on_processor = self._tracker is not None and self._device.type == "cpu"  # row by row
        dtype = windows.dtype if on_processor else torch.float32
        outputs = self._network(windows.to(self._device, dtype))
        return outputs if self._tracker else {"activations": outputs}

    def join(self, rows: Mapping[str, Tensor], n_samples: int) -> BeatEvidence:
        """Join the rows of a track of ``n_samples`` samples."""
        return join_beats(rows, self.grid, n_samples)


def join_beats(rows: Mapping[str, Tensor], grid: FrameGrid, n_samples: int) -> BeatEvidence:
    """Join the rows of a beat network whose windows lie on a grid."""
    activations = grid.join(rows["activations"], n_samples).numpy()
    if "tempo" not in rows:
        return BeatEvidence(activations)
    seconds = FrameGrid(
        SAMPLE_RATE,
        HOP_LENGTH * TEMPO_STRIDE,
        grid.n_frames // TEMPO_STRIDE,
        grid.lead // TEMPO_STRIDE,
        grid.tail // TEMPO_STRIDE,
    )
    return BeatEvidence(activations, seconds.join(rows["tempo"], n_samples).numpy())


def load_beat_model(card: ModelCard, model_dir: Path, device: torch.device) -> BeatModel:
    """Load the beat network that a card describes.

    Raises:
        CheckpointError: The checkpoint is absent, damaged, or belongs to another network.
        CardError: No class here runs this card.
    """
    match card.network:
        case "beat-tracker":
            network: BeatTracker | BeatEnsemble = build_own(
                card, model_dir, BeatTracker.from_tensors
            )
        case "beatnet":
            network = build_own(card, model_dir, BeatEnsemble.from_tensors)
        case _:
            raise CardError(f"{card.model_id}: nothing tracks beats with a {card.network!r}")
    return BeatModel(card.model_id, network, device)
