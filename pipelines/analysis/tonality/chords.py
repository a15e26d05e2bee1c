"""Chords of a track: the network on its grid, and the likeliest sequence on beats and bars."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.tonality.chordnet import (
    FRAME_CENTRE,
    FRAME_SAMPLES,
    N_CHORDS,
    NO_CHORD,
    OVERHANG,
    RECEPTIVE_FRAMES,
    SAMPLE_RATE,
    ChordNetwork,
)
from pipelines.analysis.records import UNKNOWN_KEY, Chord
from pipelines.analysis.tonality.key import length_in_tune, stretch_in_tune
from pipelines.batching.framed import FrameGrid, up_to_silence
from pipelines.batching.windows import LazyWindows, Windows

_N_FRAMES = 352
"""65.4 s, the length of every forward: a minute plus its context fits into one."""
_TRIM_FRAMES = 32
"""Lengths are multiples of this, so that few shapes occur."""
_IN_TUNE_CENTS = 15.0
"""The network is trained to tolerate this much; playing a track at another speed costs more."""
_LONGEST_STEP_S = 1.5
_STEP_S = 0.5
_FRAME_WEIGHT = 0.5
"""Neighbouring frames largely overlap."""
_CHANGE, _CHANGE_ON_BAR = 1.5, 0.5
"""Cost of a change in nats: on any beat, and on the first of a bar."""
_OTHER_BASS = 0.2
"""How much likelier than the root another bass must be."""
_RIGHT_BIAS, _RIGHT_SLOPE = 0.37, 1.37
"""How likely a chord is right, by the log-odds of its frames' mean probability: a logistic
regression on 160 rendered pieces, on sounds that the chords' training leaves out."""
_PACE_FRAMES = 3
"""Frames (.56 s) per step when chord changes are counted without knowing the beats …"""
_PACE_CHANGE = 3.0
"""… and what a change costs there, in nats."""


@dataclass(frozen=True)
class ChordEvidence:
    """The network's output for a track.

    Attributes:
        chords: float32 ``[N, 25]``, log-probabilities, see `models.tonality.chordnet.N_CHORDS`.
        basses: float32 ``[N, 13]``, log-probabilities.
        times_s: float64 ``[N]``, the middles of the frames.
    """

    chords: NDArray[np.float32]
    basses: NDArray[np.float32]
    times_s: NDArray[np.float64]

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Probabilities of the chords, ``[N, 25]``."""
        return np.exp(self.chords, dtype=np.float64)

    @cached_property
    def changes_per_second(self) -> float:
        """Chord changes per second; 0 if there are none."""
        n = len(self.chords) // _PACE_FRAMES
        if n < 2:
            return 0.0
        stretches = self.chords[: n * _PACE_FRAMES].reshape(n, _PACE_FRAMES, N_CHORDS)
        scores = _FRAME_WEIGHT * stretches.sum(axis=1, dtype=np.float64)
        path = _likeliest(scores, np.full(n, _PACE_CHANGE))
        return float(np.count_nonzero(np.diff(path)) / (self.times_s[-1] - self.times_s[0]))


class ChordModel:
    """The chord network on its grid; output ``chords [B, 352, 38]``: chords, then basses."""

    def __init__(self, model_id: str, network: ChordNetwork, device: torch.device) -> None:
        self.model_id = model_id
        self.grid = FrameGrid(
            SAMPLE_RATE,
            FRAME_SAMPLES,
            _N_FRAMES,
            RECEPTIVE_FRAMES,
            RECEPTIVE_FRAMES,
            overhang=OVERHANG,
        )
        self.spec = self.grid.spec
        self._device = device
        self._network = network.to(device).requires_grad_(False)

    def windows(
        self, samples: Tensor, tuning_cents: float, n_samples: int | None = None
    ) -> tuple[Windows, int]:
        """Tune ``[T]`` and cut it into windows; return them and the number of samples in tune.

        Args:
            samples: The track, with or without trailing zeros.
            tuning_cents: The track's tuning.
            n_samples: Length of the track without them; all of ``samples`` when None.
        """
        n = samples.shape[-1] if n_samples is None else n_samples
        if abs(tuning_cents) <= _IN_TUNE_CENTS:
            return self.grid.windows(samples, n), n
        track, length, hop = samples[:n], self.spec.length, self.spec.hop
        n = length_in_tune(n, tuning_cents)
        starts = [i * hop for i in range(self.grid.n_windows(n))]

        def make(part: slice) -> Tensor:
            return torch.stack(
                [stretch_in_tune(track, tuning_cents, start, length) for start in starts[part]]
            )

        return LazyWindows(torch.Size((len(starts), length)), torch.float32, make), n

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        on_device = windows.to(self._device, torch.float32)
        if self._device.type != "cpu":
            return {"chords": self._network(on_device)}
        heard = up_to_silence(
            on_device,
            FRAME_SAMPLES,
            self._network,
            overhang=OVERHANG,
            before=RECEPTIVE_FRAMES,
            behind=RECEPTIVE_FRAMES,
            trim=_TRIM_FRAMES,
        )
        return {"chords": heard}


def join_chords(
    rows: Mapping[str, Tensor], grid: FrameGrid, n_played: int, n_samples: int
) -> ChordEvidence:
    """Join the rows of a track of ``n_samples`` samples, which were ``n_played`` in tune."""
    joined = grid.join(rows["chords"], n_played).numpy()
    middles = np.arange(len(joined), dtype=np.float64) * FRAME_SAMPLES + FRAME_CENTRE
    times = middles * (n_samples / max(1, n_played) / SAMPLE_RATE)
    return ChordEvidence(joined[:, :N_CHORDS], joined[:, N_CHORDS:], times)


def find_chords(
    evidence: ChordEvidence,
    beats_s: Sequence[float],
    downbeats_s: Sequence[float],
    duration_s: float,
) -> list[Chord]:
    """Find the chords: at least one per bar, and more where they change on its beats.

    Args:
        evidence: The network's output.
        beats_s: Ascending; without beats, the chords change every half second at most.
        downbeats_s: A subset of the beats.
        duration_s: Length of the track, all of which the chords cover.
    """
    edges = _edges(beats_s, duration_s)
    is_bar = np.isin(edges[:-1], np.asarray(downbeats_s))
    firsts = np.searchsorted(evidence.times_s, edges[:-1])
    ends = np.maximum(firsts + 1, np.searchsorted(evidence.times_s, edges[1:]))
    firsts = np.minimum(firsts, len(evidence.times_s) - 1)
    scores = np.stack(
        [
            _FRAME_WEIGHT * evidence.chords[first:end].sum(axis=0, dtype=np.float64)
            for first, end in zip(firsts, ends, strict=True)
        ]
    )
    path = _likeliest(scores, np.where(is_bar, _CHANGE_ON_BAR, _CHANGE))
    starts = np.flatnonzero(is_bar | np.append(True, path[1:] != path[:-1]))
    return [
        _chord(
            evidence,
            int(path[start]),
            slice(int(firsts[start]), int(ends[end - 1])),
            float(edges[start]),
            float(edges[end]),
        )
        for start, end in zip(starts, [*starts[1:], len(path)], strict=True)
    ]


def _edges(beats_s: Sequence[float], duration_s: float) -> NDArray[np.float64]:
    """Return where chords may change: the beats, and regular steps in long gaps without any."""
    inside = [beat for beat in beats_s if 0.0 < beat < duration_s]
    whole = [0.0, *inside, duration_s]
    edges: list[float] = []
    for start, end in pairwise(whole):
        steps = round((end - start) / _STEP_S) if end - start > _LONGEST_STEP_S else 1
        edges += [start + (end - start) / steps * i for i in range(steps)]
    return np.array([*edges, duration_s])


def _likeliest(scores: NDArray[np.float64], change_costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find the path through ``[N, 25]`` that scores best, less the cost ``[N]`` of its changes."""
    best = scores[0]
    came_from = np.zeros(scores.shape, dtype=np.int64)
    here = np.arange(scores.shape[1])
    for i in range(1, len(scores)):
        change = int(best.argmax())
        is_change = best[change] - change_costs[i] > best
        came_from[i] = np.where(is_change, change, here)
        best = np.where(is_change, best[change] - change_costs[i], best) + scores[i]
    path = np.zeros(len(scores), dtype=np.int64)
    path[-1] = best.argmax()
    for i in range(len(scores) - 1, 0, -1):
        path[i - 1] = came_from[i, path[i]]
    return path


def _chord(
    evidence: ChordEvidence, chord: int, frames: slice, start_s: float, end_s: float
) -> Chord:
    confidence = _confidence(float(evidence.probabilities[frames, chord].mean()))
    if chord == NO_CHORD:
        return Chord(start_s, end_s - start_s, UNKNOWN_KEY, UNKNOWN_KEY, UNKNOWN_KEY, confidence)
    root = chord % 12
    support = np.exp(evidence.basses[frames, :12]).mean(axis=0)
    support[root] += _OTHER_BASS
    return Chord(
        start_s, end_s - start_s, root, 1 if chord < 12 else 0, int(support.argmax()), confidence
    )


def _confidence(probability: float) -> float:
    """Return the share of chords with this mean probability that are right."""
    p = min(max(probability, 1e-6), 1.0 - 1e-6)
    log_odds = _RIGHT_BIAS + _RIGHT_SLOPE * math.log(p / (1.0 - p))
    return 1.0 / (1.0 + math.exp(-log_odds))
