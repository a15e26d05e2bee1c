"""Wire shapes of the API, letter for letter the specification's."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Percent = Annotated[int, Field(ge=0, le=100)]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
KeyName = Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]


class WireModel(BaseModel):
    """Base of all bodies: serialised by alias, unknown input fields ignored."""

    model_config = ConfigDict(populate_by_name=True)


class Error(WireModel):
    """Every failed request answers with this body."""

    error: str = Field(
        description="Machine-readable error code.", examples=["insufficient_credits"]
    )
    message: str = Field(description="What happened and what to do about it.")
    trace_id: str | None = Field(None, description="Quote it when you ask for help.")


class Meta(WireModel):
    """How the request was served."""

    cache: Literal["hit", "miss", "bypass"] = Field(
        description="Whether the response came from cache."
    )
    latency_ms: int = Field(ge=0, description="Processing time in milliseconds.")
    credits_used: int = Field(ge=0, description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative inside the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")


class JobMeta(Meta):
    """`Meta` of a job: also how far it is."""

    progress: Unit = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.", examples=["decode", "analyse"])


class MoodTagBody(WireModel):
    """A tag and its calibrated score."""

    tag: str
    score: Unit


class Features(WireModel):
    """Audio features in the canonical shape."""

    artist: str = Field(description="Empty when unknown (uploads).")
    title: str = Field(description="Empty when unknown (uploads).")
    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.")
    key: KeyName | None = Field(description="Musical key; null when there is none.")
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    camelot: str | None = Field(
        description="Camelot wheel notation; null when there is no key.", examples=["8A"]
    )
    energy: Percent
    danceability: Percent
    happiness: Percent
    acousticness: Percent
    instrumentalness: Percent


class ExtendedFeatures(Features):
    """Features with the service's own fields."""

    mix_in: float = Field(description="Seconds; where to start mixing in.")
    mix_out: float = Field(description="Seconds; where to start mixing out.")
    mood_tags: list[MoodTagBody] = Field(description="By falling score.")
    loudness: float = Field(description="Integrated loudness, LUFS (BS.1770-4); silence is -70.")
    time_signature: int = Field(description="Beats in a bar, 2 to 7.")
    duration_ms: int = Field(ge=0)
    speechiness: Percent
    liveness: Percent
    tempo_confidence: Unit
    key_confidence: Unit
    models: dict[str, str] = Field(description="Role to id of the checkpoint that made it.")


class AnalysisFeatures(ExtendedFeatures):
    """Result of an analysis job."""

    beats: list[float] = Field(description="Seconds of every beat.")
    downbeats: list[float] = Field(description="Seconds of the first beat of every bar.")
    embedding: list[float] | None = Field(
        None, description="768 floats, L2-normalised; only when `include_embedding` was set."
    )
    embedding_model: str | None = Field(
        None, description="Compare embeddings of the same model only."
    )


class SpotifyFeatures(WireModel):
    """Audio features in Spotify's shape."""

    id: str
    type: Literal["audio_features"] = "audio_features"
    uri: str = Field(examples=["afa:track:job_01jb3q8k6ya7rj1v6fwb2q4m9d"])
    track_href: str = Field(json_schema_extra={"format": "uri"})
    analysis_url: str = Field(json_schema_extra={"format": "uri"})
    key: int = Field(ge=-1, le=11, description="Pitch class, C = 0; -1 unknown.")
    mode: Literal[-1, 0, 1] = Field(description="1 major, 0 minor, -1 unknown.")
    tempo: float = Field(ge=0)
    loudness: float = Field(description="Integrated loudness, LUFS.")
    time_signature: int = Field(ge=3, le=7)
    duration_ms: int = Field(ge=0)
    energy: Unit
    danceability: Unit
    valence: Unit
    acousticness: Unit
    instrumentalness: Unit
    speechiness: Unit
    liveness: Unit
    embedding: list[float] | None = Field(
        None, description="768 floats; only when `include_embedding` was set."
    )
    embedding_model: str | None = None


class JobEnvelope(WireModel):
    """An analysis job."""

    status: Literal["queued", "running", "complete", "failed"]
    job_id: str = Field(examples=["job_01jb3q8k6ya7rj1v6fwb2q4m9d"])
    result: AnalysisFeatures | SpotifyFeatures | None = Field(
        None, description="Filled when `status` is `complete`."
    )
    error: Error | None = Field(None, description="Filled when `status` is `failed`.")
    meta: JobMeta = Field(alias="_meta")


class UrlAnalysisRequest(WireModel):
    """Where to fetch the audio, and what to compute."""

    url: str = Field(
        min_length=1,
        max_length=4096,
        description="Public HTTP(S) address that returns audio bytes directly.",
        json_schema_extra={"format": "uri"},
        examples=["https://example.org/track.mp3"],
    )
    include_embedding: bool = Field(False, description="Adds a 768-d embedding (PRO and Scale).")


class Health(WireModel):
    """State of the service."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(description="Part to `ok` or what is wrong with it.")


class AssetUpload(WireModel):
    """A stored asset."""

    asset_id: str = Field(examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"])
    sha256: str = Field(description="Hex SHA-256 of the stored bytes.")
    size_bytes: int
    expires_at: datetime = Field(description="When the asset is deleted.")
