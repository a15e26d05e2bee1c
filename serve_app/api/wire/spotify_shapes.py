"""Spotify's Web API shapes, for the reference; values are made in `serve_app.api.wire.spotify`."""

from typing import Any

from pydantic import BaseModel

from serve_app.api.door.request import ERROR_TEXTS, RETRY_AFTER, RETRYABLE_STATUSES
from serve_app.api.wire.features import SpotifyFeatures


class SpotifyErrorObject(BaseModel):
    """Spotify's error object, with our code beside it."""

    status: int
    message: str
    code: str


class SpotifyError(BaseModel):
    """Every failed request below `/spotify/` answers with this body."""

    error: SpotifyErrorObject
    message: str
    trace_id: str


class SpotifyBatch(BaseModel):
    """Audio features of several tracks; null where there are none."""

    audio_features: list[SpotifyFeatures | None]


class Interval(BaseModel):
    """A bar, beat or tatum; seconds."""

    start: float
    duration: float
    confidence: float


class AnalysisSegment(Interval):
    """A stretch of near-constant sound."""

    loudness_start: float
    loudness_max: float
    loudness_max_time: float
    loudness_end: float
    pitches: list[float]
    timbre: list[float]


class AnalysisSection(Interval):
    """A large part of the track."""

    loudness: float
    tempo: float
    tempo_confidence: float
    key: int
    key_confidence: float
    mode: int
    mode_confidence: float
    time_signature: int
    time_signature_confidence: float


class AudioAnalysis(BaseModel):
    """Structure of a track."""

    meta: dict[str, Any]
    track: dict[str, Any]
    bars: list[Interval]
    beats: list[Interval]
    tatums: list[Interval]
    sections: list[AnalysisSection]
    segments: list[AnalysisSegment]


class SpotifyTrack(BaseModel):
    """A track; what is unknown is empty."""

    id: str
    name: str
    type: str
    uri: str
    href: str
    duration_ms: int
    external_ids: dict[str, str]
    artists: list[dict[str, Any]]
    album: dict[str, Any]


class SpotifyTracks(BaseModel):
    """Several tracks; null where there is none."""

    tracks: list[SpotifyTrack | None]


class SpotifyPage(BaseModel):
    """One page of a search."""

    href: str
    items: list[SpotifyTrack]
    limit: int
    next: str | None
    offset: int
    previous: str | None
    total: int


class SpotifySearch(BaseModel):
    """What a search found."""

    tracks: SpotifyPage


def spotify_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe error answers of a Spotify-shaped route for the OpenAPI document."""
    return {
        status: {"model": SpotifyError, "description": ERROR_TEXTS[status]}
        | ({"headers": RETRY_AFTER} if status in RETRYABLE_STATUSES else {})
        for status in statuses
    }
