"""Spotify's Web API shapes, for the reference; `spotify.py` in this folder makes the values."""

from typing import Any

from pydantic import BaseModel, Field

from serve_app.api.door.request import ERROR_TEXTS, RETRY_AFTER, RETRYABLE_STATUSES
from serve_app.api.wire.features import SpotifyFeatures
from serve_app.api.wire.meanings import TEMPO, TITLE


class SpotifyErrorObject(BaseModel):
    """Spotify's error object, with afa's code added."""

    status: int = Field(description="HTTP status.")
    message: str = Field(description="What happened and what to do about it.")
    code: str = Field(description="afa's machine-readable error code.")


class SpotifyError(BaseModel):
    """Every failed request below `/spotify/` answers with this body."""

    error: SpotifyErrorObject = Field(description="The error as Spotify writes it.")
    message: str = Field(description="What happened and what to do about it.")
    trace_id: str = Field(description="Quote it when you ask for help.")


class SpotifyBatch(BaseModel):
    """Audio features of several tracks; null if there are none."""

    audio_features: list[SpotifyFeatures | None] = Field(
        description="In the order of `ids`; null if a track has none."
    )


class Interval(BaseModel):
    """A bar, beat or tatum."""

    start: float = Field(description="Seconds from the beginning of the track.")
    duration: float = Field(description="Seconds.")
    confidence: float = Field(description="0 to 1.")


class AnalysisSegment(Interval):
    """A stretch of near-constant sound."""

    loudness_start: float = Field(description="Level at its start, dB relative to full scale.")
    loudness_max: float = Field(description="Highest level within it, dB relative to full scale.")
    loudness_max_time: float = Field(description="Seconds from its start to that level.")
    loudness_end: float = Field(description="Always 0, as in most of Spotify's answers.")
    pitches: list[float] = Field(
        description="Strength of the twelve pitch classes from C to B; the strongest is 1."
    )
    timbre: list[float] = Field(description="Twelve coefficients of the spectrum's shape.")


class AnalysisSection(Interval):
    """A large part of the track."""

    loudness: float = Field(description="Mean level, dB relative to full scale.")
    tempo: float = Field(description=TEMPO)
    tempo_confidence: float = Field(description="0 to 1.")
    key: int = Field(description="Pitch class, C = 0; -1 unknown.")
    key_confidence: float = Field(description="0 to 1.")
    mode: int = Field(description="1 major, 0 minor, -1 unknown.")
    mode_confidence: float = Field(description="0 to 1.")
    time_signature: int = Field(description="Beats in a bar, 3 to 7.")
    time_signature_confidence: float = Field(description="0 to 1.")


class AudioAnalysis(BaseModel):
    """Structure of a track."""

    meta: dict[str, Any] = Field(description="About the analyser, as Spotify writes it.")
    track: dict[str, Any] = Field(description="About the whole track, as Spotify writes it.")
    bars: list[Interval] = Field(description="From downbeat to downbeat.")
    beats: list[Interval] = Field(description="From beat to beat.")
    tatums: list[Interval] = Field(description="Half beats.")
    sections: list[AnalysisSection] = Field(description="The large parts, in order.")
    segments: list[AnalysisSegment] = Field(description="The stretches of near-constant sound.")


class SpotifyTrack(BaseModel):
    """A track; what is unknown is empty."""

    id: str = Field(description="The id that was asked for.")
    name: str = Field(description=TITLE)
    type: str = Field(description="Always `track`.")
    uri: str = Field(description="The same id as `afa:track:<id>`.")
    href: str = Field(description="Address of this object.")
    duration_ms: int = Field(description="Length in milliseconds; 0 when unknown.")
    external_ids: dict[str, str] = Field(description="`isrc`, if it is known.")
    artists: list[dict[str, Any]] = Field(description="One artist object.")
    album: dict[str, Any] = Field(description="The album object.")
    available_markets: list[str] = Field(description="Always empty.")
    disc_number: int = Field(description="Always 1.")
    explicit: bool = Field(description="Always false.")
    external_urls: dict[str, str] = Field(description="Always empty.")
    is_local: bool = Field(description="Always false.")
    is_playable: bool = Field(description="Always true.")
    popularity: int = Field(description="Always 0.")
    preview_url: str | None = Field(description="Always null.")
    track_number: int = Field(description="Always 1.")


class SpotifyTracks(BaseModel):
    """Several tracks; null if there is none."""

    tracks: list[SpotifyTrack | None] = Field(description="In the order of `ids`.")


class SpotifyPage(BaseModel):
    """One page of a search."""

    href: str = Field(description="Address of this page.")
    items: list[SpotifyTrack] = Field(description="The tracks, best first.")
    limit: int = Field(description="Tracks per page.")
    next: str | None = Field(description="Address of the next page, if there is one.")
    offset: int = Field(description="Tracks skipped before this page.")
    previous: str | None = Field(description="Address of the previous page.")
    total: int = Field(
        description="Tracks up to the end of this page, plus one if another page follows."
    )


class SpotifySearch(BaseModel):
    """What a search found."""

    tracks: SpotifyPage = Field(description="A page of tracks.")


def spotify_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe error answers of a Spotify-shaped route for the OpenAPI document."""
    return {
        status: {"model": SpotifyError, "description": ERROR_TEXTS[status]}
        | ({"headers": RETRY_AFTER} if status in RETRYABLE_STATUSES else {})
        for status in statuses
    }
