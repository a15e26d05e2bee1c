"""Key and tempo, identifiers and beat grids on the wire."""

from datetime import datetime

from pydantic import Field

from serve_app.api.wire.bodies import KeyName, Meta, Unit, WireModel
from serve_app.api.wire.meanings import ARTIST, IDS, META, TEMPO, TEMPO_CONFIDENCE, TITLE


class KeyBpm(WireModel):
    """Tempo and key only."""

    tempo: float = Field(ge=0, description=TEMPO, examples=[124.0])
    key: KeyName | None = Field(description="Musical key; null when there is none.")
    mode: str | None = Field(description="`major` or `minor`; null when there is no key.")
    camelot: str | None = Field(
        description="Camelot wheel notation; null when there is no key.", examples=["8A"]
    )
    meta: Meta = Field(alias="_meta", description=META)


class ResolvedTrack(WireModel):
    """One track's identifiers on every platform; null if unknown."""

    mbid: str | None = Field(description=IDS["mbid"])
    isrc: str | None = Field(description=IDS["isrc"], examples=["QZAFA2600001"])
    spotify_id: str | None = Field(description=IDS["spotify_id"])
    apple_id: str | None = Field(description=IDS["apple_id"])
    deezer_id: str | None = Field(description=IDS["deezer_id"])
    youtube_id: str | None = Field(description=IDS["youtube_id"])
    artist: str = Field(description=ARTIST)
    title: str = Field(description=TITLE)
    meta: Meta = Field(alias="_meta", description=META)


class BeatGridBody(WireModel):
    """Where the beats of a track are."""

    tempo: float = Field(ge=0, description=TEMPO)
    downbeat: float = Field(ge=0, description="Time of the first downbeat in seconds.")
    beats: list[float] = Field(description="Time of every beat in seconds.")
    downbeats: list[float] = Field(description="Time of the first beat of every bar in seconds.")
    tempo_source: str = Field(
        description="`verified`: a person checked the tempo, and the grid follows it. "
        "`computed`: the tempo comes from the audio.",
        examples=["verified"],
    )
    meta: Meta = Field(alias="_meta", description=META)


class Bpm(WireModel):
    """The tempo of the audio that was sent."""

    tempo: float = Field(ge=0, description=TEMPO, examples=[128.0])
    confidence: Unit = Field(description=TEMPO_CONFIDENCE)
    asset_id: str | None = Field(None, description="The asset used; only if one was named.")
    asset_expires_at: datetime | None = Field(
        None, description="When the asset is deleted; only if one was named."
    )
    meta: Meta = Field(alias="_meta", description=META)
