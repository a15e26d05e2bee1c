"""A track's beat grid: the computed beats, or a steady grid fitted to a verified tempo."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.identity import TrackIdentity

BEATS_PER_BAR = 4


@dataclass(frozen=True, slots=True)
class BeatGrid:
    """Tempo in BPM, times in seconds.

    Attributes:
        downbeat: The first beat of the first bar; 0 if there are no beats.
        downbeats: A subset of ``beats``.
        tempo_source: ``verified`` if a person checked the tempo, else ``computed``.
    """

    tempo: float
    downbeat: float
    beats: list[float]
    downbeats: list[float]
    tempo_source: Literal["verified", "computed"]


def verified_grid(identity: TrackIdentity) -> BeatGrid | None:
    """Return the verified grid of the catalog, if it has a complete one."""
    if not identity.is_verified or identity.tempo is None or not identity.beats:
        return None
    downbeats = list(identity.downbeats)
    first = downbeats[0] if downbeats else identity.beats[0]
    return BeatGrid(identity.tempo, first, list(identity.beats), downbeats, "verified")


def fitted_grid(identity: TrackIdentity, features: TrackFeatures) -> BeatGrid:
    """Return the computed beats, fitted to the verified tempo if there is one."""
    if identity.is_verified and identity.tempo:
        return steady_grid(identity.tempo, features)
    beats, downbeats = features.beats, features.downbeats
    first = downbeats[0] if downbeats else (beats[0] if beats else 0.0)
    return BeatGrid(features.tempo, first, beats, downbeats, "computed")


def steady_grid(tempo: float, features: TrackFeatures) -> BeatGrid:
    """Lay beats of one tempo over the track, in the phase that agrees best with the computed ones.

    Args:
        tempo: BPM, > 0.
        features: Computed beats and downbeats.
    """
    if not features.beats:
        return BeatGrid(tempo, 0.0, [], [], "verified")
    period = 60.0 / tempo
    phase = circular_mean(features.beats, period)
    count = max(1, math.ceil((features.duration_s - phase) / period))
    beats = [round(phase + n * period, 4) for n in range(count)]
    bar = max(1, features.time_signature or BEATS_PER_BAR)
    offset = 0
    if features.downbeats:
        anchor = circular_mean(features.downbeats, bar * period)
        offset = round((anchor - phase) / period) % bar
    downbeats = beats[offset::bar]
    return BeatGrid(tempo, downbeats[0] if downbeats else beats[0], beats, downbeats, "verified")


def circular_mean(times: Sequence[float], period: float) -> float:
    """Return the mean phase of ``times`` in [0, period), all in seconds."""
    angles = [2 * math.pi * time / period for time in times]
    angle = math.atan2(sum(map(math.sin, angles)), sum(map(math.cos, angles)))
    phase = (angle / (2 * math.pi) * period) % period
    return 0.0 if period - phase < 1e-9 else phase
