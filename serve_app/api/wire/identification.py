"""Identifications on the wire."""

from functools import partial
from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from serve_app.api.wire.bodies import Meta, WireModel
from serve_app.api.wire.meanings import IDS, META

Known = partial(Field, default_factory=lambda: None, exclude_if=lambda value: value is None)
"""A field that is present if its value is known, and is never null."""


class EnrichmentBody(WireModel):
    """What is known about an identified track; unknown fields are left out."""

    bpm: float | SkipJsonSchema[None] = Known(description="Tempo in BPM.", examples=[123.97])
    key: str | SkipJsonSchema[None] = Known(description="Pitch class of the key.", examples=["A"])
    camelot: str | SkipJsonSchema[None] = Known(
        description="Camelot wheel notation.", examples=["8A"]
    )
    label: str | SkipJsonSchema[None] = Known(
        description="Record label.", examples=["Localhost Records"]
    )
    genre: list[str] = Field(
        [], description="Broad genres of the release.", examples=[["Electronic"]]
    )
    styles: list[str] = Field(
        [], description="Finer styles of the release.", examples=[["Synth-pop"]]
    )
    spotify_id: str | SkipJsonSchema[None] = Known(description=IDS["spotify_id"])
    apple_id: str | SkipJsonSchema[None] = Known(description=IDS["apple_id"])
    deezer_id: str | SkipJsonSchema[None] = Known(description=IDS["deezer_id"])
    youtube_id: str | SkipJsonSchema[None] = Known(description=IDS["youtube_id"])
    artwork_url: str | SkipJsonSchema[None] = Known(
        description="Address of the cover.", json_schema_extra={"format": "uri"}
    )


class Identification(WireModel):
    """Which track a recording is; unknown fields are left out."""

    matched: bool = Field(description="Whether the track was identified.")
    artist: str | SkipJsonSchema[None] = Known(description="Present if matched.")
    title: str | SkipJsonSchema[None] = Known(description="Present if matched.")
    album: str | SkipJsonSchema[None] = Known(description="Album or single it is on.")
    year: str | SkipJsonSchema[None] = Known(description="Year of that release.")
    isrc: str | SkipJsonSchema[None] = Known(description="International Standard Recording Code.")
    confidence: int = Field(
        0, ge=0, le=100, description="How certain the match is, 0 to 100; 0 if unmatched."
    )
    source_service: str | SkipJsonSchema[None] = Known(
        description="Which service produced the match.", examples=["local"]
    )
    services_tried: dict[str, Literal["match", "no_match", "error", "skipped"]] = Field(
        description="The result of every service of the cascade, in order.",
        examples=[{"local": "match", "acoustid": "skipped"}],
    )
    enrichment: EnrichmentBody | None = Field(None, description="null if unmatched.")
    meta: Meta = Field(alias="_meta", description=META)
