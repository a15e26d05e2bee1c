"""Key and tempo, identifiers and beat grids on the wire."""

from datetime import datetime

from pydantic import Field

from serve_app.api.wire.bodies import KeyName, Meta, Unit, WireModel


class KeyBpm(WireModel):
    """Tempo and key alone."""

    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.", examples=[124.0])
    key: KeyName | None = Field(description="Musical key; null when there is none.")
    mode: str | None = Field(description="`major` or `minor`; null when there is no key.")
    camelot: str | None = Field(
        description="Camelot wheel notation; null when there is no key.", examples=["8A"]
    )
    meta: Meta = Field(alias="_meta")


class ResolvedTrack(WireModel):
    """One track's identifiers on every platform; null where unknown."""

    mbid: str | None = Field(description="MusicBrainz recording ID.")
    isrc: str | None = Field(examples=["QZAFA2600001"])
    spotify_id: str | None
    apple_id: str | None
    deezer_id: str | None
    youtube_id: str | None
    artist: str = Field(description="Empty when unknown (uploads).")
    title: str = Field(description="Empty when unknown (uploads).")
    meta: Meta = Field(alias="_meta")


class BeatGridBody(WireModel):
    """Where the beats of a track are."""

    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.")
    downbeat: float = Field(ge=0, description="Seconds of the first downbeat.")
    beats: list[float] = Field(description="Seconds of every beat.")
    downbeats: list[float] = Field(description="Seconds of the first beat of every bar.")
    tempo_source: str = Field(
        description="`verified`: a person checked the tempo, and the grid follows it; "
        "`computed`: from the audio.",
        examples=["verified"],
    )
    meta: Meta = Field(alias="_meta")


class Bpm(WireModel):
    """The tempo of the audio that was sent."""

    tempo: float = Field(ge=0, description="BPM; 0 when there is no beat.", examples=[128.0])
    confidence: Unit
    asset_id: str | None = Field(None, description="The asset used; only when one was named.")
    asset_expires_at: datetime | None = Field(None, description="Only when an asset was named.")
    meta: Meta = Field(alias="_meta")
