"""Segments, sections and mix points: the track's structure, from the models' measurements."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.loudness import STEP_S
from models.rhythm.tempo import dominant_tempo
from models.segments import (
    FLOOR_DB,
    FRAME_RATE,
    HOP_LENGTH,
    SAMPLE_RATE,
    SoundFrames,
    find_boundaries,
    section_boundaries,
)
from models.tonality.key import UNKNOWN
from pipelines.analysis.levels import Levels
from pipelines.analysis.records import Section, Segment
from pipelines.analysis.rhythm.estimate import CHROMA_RATE, NO_RHYTHM, Rhythm
from pipelines.analysis.tonality.key import estimate_key
from pipelines.audio.gain import SILENCE_PEAK
from pipelines.batching.framed import FrameGrid, up_to_silence

GRID_FRAMES = 1500
"""30 s, the length of every forward."""
_LEAD_FRAMES = 4
"""Earlier frames that a frame depends on: onsets look back two, and each one's FFT spans two."""

_SECTION_FRAME_S = 0.5
_SECTION_STRETCH_S = 12.0
_SHORTEST_SECTION_S = 8.0
_PHRASE_BARS = 4
_SILENCE_DB, _LEAST_HEARD = 20.0 * math.log10(SILENCE_PEAK), 0.1
_QUIET_DB = 30.0
"""Down to this far below the loudest part there is still music, however soft the whole track."""
_QUIETER_LU = 8.0
"""A phrase this far below the programme loudness belongs to the intro or outro."""


class SoundModel:
    """Onsets, level and timbre as a windowed model; output ``sound [B, 1500, 14]``."""

    model_id = "sound-frames"

    def __init__(self, device: torch.device) -> None:
        # The FFT of the last two frames reaches beyond the window's end.
        self.grid = FrameGrid(SAMPLE_RATE, HOP_LENGTH, GRID_FRAMES, lead=_LEAD_FRAMES, tail=2)
        self.spec = self.grid.spec
        self._device = device
        self._frames = SoundFrames().to(device)

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        on_device = windows.to(self._device, torch.float32)
        if self._device.type != "cpu":
            return {"sound": self._frames(on_device)}
        return {"sound": up_to_silence(on_device, HOP_LENGTH, self._frames, before=_LEAD_FRAMES)}


@dataclass(frozen=True, slots=True)
class MeasuredTrack:
    """The measurements from which the structure is derived.

    Attributes:
        duration_s: Length of the track in seconds.
        sound: float32 ``[N, 14]``, see `models.segments.SoundFrames`.
        chroma: float32 ``[M, 12]``, see `models.tonality.key.Hpcp`.
    """

    duration_s: float
    sound: NDArray[np.float32]
    chroma: NDArray[np.float32]
    levels: Levels
    rhythm: Rhythm


def _means(values: NDArray[np.floating], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Means of ``values [N, D]`` between edges; an empty stretch takes the nearest row."""
    starts = np.clip(edges[:-1], 0, len(values) - 1)
    stops = np.clip(np.maximum(edges[1:], starts + 1), 1, len(values))
    sums = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(axis=0, dtype=np.float64)])
    return np.asarray((sums[stops] - sums[starts]) / (stops - starts)[:, None])


def find_segments(track: MeasuredTrack) -> list[Segment]:
    """Describe the stretches of near-constant sound.

    Returns:
        Segments without gaps from 0 to the track's end. ``pitches`` are chroma with a maximum of 1
        (zeros if nothing has pitch), ``timbre`` 12 cosine coefficients of the band levels.
    """
    onset, level = track.sound[:, 0], track.sound[:, 1]
    edges = find_boundaries(onset)
    if len(edges) < 2:
        return []
    times = np.minimum(edges / FRAME_RATE, track.duration_s)
    times[-1] = track.duration_s
    # A chroma frame is centred one hop behind its start.
    pitches = _means(track.chroma, np.round(times * CHROMA_RATE - 1.0).astype(np.int64))
    pitches = pitches / np.maximum(pitches.max(axis=1, keepdims=True), 1e-6)
    timbre = _means(track.sound[:, 2:], edges)
    loudest = np.maximum.reduceat(level, edges[:-1])
    # Rounded together: a long track has half a million of them.
    pitch_rows, timbre_rows = pitches.round(3).tolist(), timbre.round(3).tolist()
    strength = np.clip(onset[edges[:-1]] / 12.0, 0.0, 1.0)
    return [
        Segment(
            start_s=float(times[i]),
            duration_s=float(times[i + 1] - times[i]),
            confidence=round(float(strength[i]) if i else 1.0, 3),
            loudness_start_db=round(float(level[start]), 3),
            loudness_max_db=round(float(loudest[i]), 3),
            loudness_max_time_s=float(level[start:stop].argmax() / FRAME_RATE),
            pitches=pitch_rows[i],
            timbre=timbre_rows[i],
        )
        for i, (start, stop) in enumerate(itertools.pairwise(edges))
    ]


def find_sections(track: MeasuredTrack) -> list[Section]:
    """Cut the track into its large parts and describe each.

    Boundaries in the music are moved to the nearest downbeat within a bar; silence before or after
    it moves none of them. It is a section if it is long enough for one. Sections tile the track.
    """
    begin, end = _sounding(track)
    n = max(1, round((end - begin) / _SECTION_FRAME_S))
    marks = np.arange(n + 1, dtype=np.float64) * _SECTION_FRAME_S + begin
    timbre = _means(track.sound[:, 2:], np.round(marks * FRAME_RATE).astype(np.int64))
    chroma = _means(track.chroma, np.round(marks * CHROMA_RATE).astype(np.int64))
    timbre = timbre / max(float(timbre.std(axis=0).mean()), 1.0)
    features = np.concatenate(
        [timbre, chroma / max(float(chroma.std(axis=0).mean()), 0.05)], axis=1
    )
    edges, confidence = section_boundaries(
        features,
        round(_SECTION_STRETCH_S / _SECTION_FRAME_S),
        round(_SHORTEST_SECTION_S / _SECTION_FRAME_S),
    )
    inner = _to_downbeats(marks[edges[1:-1]], track.rhythm)
    before = [begin] if begin >= _SHORTEST_SECTION_S else []
    behind = [end] if track.duration_s - end >= _SHORTEST_SECTION_S else []
    confidence = np.concatenate([np.ones(1 + len(before)), confidence[1:], np.ones(len(behind))])
    # Two boundaries may have moved to the same downbeat.
    times, first = np.unique([0.0, *before, *inner, *behind, track.duration_s], return_index=True)
    return [
        _describe(track, float(start), float(stop), float(confidence[i]))
        for (start, stop), i in zip(itertools.pairwise(times), first, strict=False)
    ]


def _sounding(track: MeasuredTrack) -> tuple[float, float]:
    """Return where a track's sound begins and ends, in seconds, at least one section apart."""
    heard = np.flatnonzero(track.sound[:, 1] > _softest_db(track)) / FRAME_RATE
    begin, end = (heard[0], heard[-1]) if len(heard) else (0.0, track.duration_s)
    begin = max(0.0, min(begin, track.duration_s - _SHORTEST_SECTION_S))
    return float(begin), min(max(end, begin + _SHORTEST_SECTION_S), track.duration_s)


def _softest_db(track: MeasuredTrack) -> float:
    """Return the level above which a track has sound."""
    return float(np.clip(track.sound[:, 1].max() - _QUIET_DB, FLOOR_DB, _SILENCE_DB))


def _to_downbeats(times: NDArray[np.float64], rhythm: Rhythm) -> NDArray[np.float64]:
    if len(rhythm.downbeats) < 2:
        return times
    bar_s = float(np.median(np.diff(rhythm.downbeats)))
    nearest = rhythm.downbeats[np.abs(times[:, None] - rhythm.downbeats).argmin(axis=1)]
    return np.where(np.abs(nearest - times) <= bar_s, nearest, times)


def _is_silent(track: MeasuredTrack, start: float, stop: float) -> bool:
    """Whether a stretch is silent, ignoring sound that reaches over its edges."""
    first = min(int(start * FRAME_RATE), len(track.sound) - 1)
    inside = track.sound[first : max(first + 1, round(stop * FRAME_RATE)), 1]
    return bool(np.mean(inside > _softest_db(track)) < _LEAST_HEARD)


def _describe(track: MeasuredTrack, start: float, stop: float, confidence: float) -> Section:
    is_silent = _is_silent(track, start, stop)
    rhythm = NO_RHYTHM if is_silent else track.rhythm
    inside = rhythm.beats[(rhythm.beats >= start) & (rhythm.beats < stop)]
    chroma = track.chroma[int(start * CHROMA_RATE) : max(1, int(stop * CHROMA_RATE))]
    key = UNKNOWN if is_silent else estimate_key(chroma if len(chroma) else track.chroma[-1:])
    steps = track.levels.steps_lufs[int(start / STEP_S) : max(1, round(stop / STEP_S))]
    energy = np.mean(10.0 ** (steps / 10.0)) if len(steps) else 1e-7
    return Section(
        start_s=start,
        duration_s=stop - start,
        confidence=round(confidence, 3),
        loudness_db=round(float(10.0 * np.log10(energy)), 3),
        tempo=dominant_tempo(inside) or rhythm.tempo,
        tempo_confidence=rhythm.tempo_confidence,
        key=key.key,
        key_confidence=key.confidence,
        mode=key.mode,
        mode_confidence=key.confidence,
        time_signature=rhythm.time_signature,
        time_signature_confidence=rhythm.time_signature_confidence,
    )


def find_mix_points(track: MeasuredTrack) -> tuple[float, float]:
    """Find where a track can be faded in and out.

    Returns:
        ``(mix_in_s, mix_out_s)``: the downbeat that starts the first full-energy phrase of four
        bars, and the end of the last one, whole phrases later. Without bars, the times at which the
        full-energy level is first reached and last left; a silent track gives 0 and its duration.
    """
    threshold = max(track.levels.loudness_lufs - _QUIETER_LU, -70.0)
    heard = np.flatnonzero(track.levels.steps_lufs > threshold)
    if not len(heard):
        return 0.0, track.duration_s
    first = float(heard[0] * STEP_S)
    last = min(float((heard[-1] + 1) * STEP_S), track.duration_s)
    downbeats = track.rhythm.downbeats
    if len(downbeats) <= _PHRASE_BARS:
        return first, last
    edges = np.round(downbeats / STEP_S).astype(np.int64)
    bars = _means(10.0 ** (track.levels.steps_lufs[:, None] / 10.0), edges)[:, 0]
    is_full = np.lib.stride_tricks.sliding_window_view(
        10.0 * np.log10(bars) > threshold, _PHRASE_BARS
    ).all(axis=1)
    full = np.flatnonzero(is_full)
    if not len(full):
        return first, last
    begin = int(full[0])
    phrases = (int(full[-1]) - begin) // _PHRASE_BARS + 1
    return float(downbeats[begin]), float(downbeats[begin + phrases * _PHRASE_BARS])
