"""Wire shape of an identification."""

from typing import Literal

from pydantic import Field

from serve_app.api.schemas import Meta, WireModel


class EnrichmentBody(WireModel):
    """What is known of an identified track; fields that nobody knows are left out."""

    bpm: float | None = Field(None, description="Tempo in BPM.", examples=[123.97])
    key: str | None = Field(None, description="Pitch class of the key.", examples=["A"])
    camelot: str | None = Field(None, examples=["8A"])
    label: str | None = Field(None, examples=["Localhost Records"])
    genre: list[str] = Field([], examples=[["Electronic"]])
    styles: list[str] = Field([], examples=[["Synth-pop"]])
    spotify_id: str | None = None
    apple_id: str | None = None
    deezer_id: str | None = None
    youtube_id: str | None = None
    artwork_url: str | None = Field(None, json_schema_extra={"format": "uri"})


class Identification(WireModel):
    """Who a recording is."""

    matched: bool = Field(description="Whether the track was identified.")
    artist: str | None = Field(None, description="Present when matched.")
    title: str | None = Field(None, description="Present when matched.")
    album: str | None = None
    year: str | None = None
    isrc: str | None = None
    confidence: int = Field(0, ge=0, le=100, description="0 when unmatched.")
    source_service: str | None = Field(
        None, description="Which service produced the match.", examples=["local"]
    )
    services_tried: dict[str, Literal["match", "no_match", "error", "skipped"]] = Field(
        description="Every service of the cascade, in order.",
        examples=[{"local": "match", "acoustid": "skipped"}],
    )
    enrichment: EnrichmentBody | None = Field(None, description="Null when unmatched.")
    meta: Meta = Field(alias="_meta")
