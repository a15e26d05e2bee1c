"""Wire shape of an identification."""

from functools import partial
from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from serve_app.api.wire.bodies import Meta, WireModel

Known = partial(Field, default_factory=lambda: None, exclude_if=lambda value: value is None)
"""A field that is there when its value is known, and then is never null."""


class EnrichmentBody(WireModel):
    """What is known of an identified track; fields that nobody knows are left out."""

    bpm: float | SkipJsonSchema[None] = Known(description="Tempo in BPM.", examples=[123.97])
    key: str | SkipJsonSchema[None] = Known(description="Pitch class of the key.", examples=["A"])
    camelot: str | SkipJsonSchema[None] = Known(examples=["8A"])
    label: str | SkipJsonSchema[None] = Known(examples=["Localhost Records"])
    genre: list[str] = Field([], examples=[["Electronic"]])
    styles: list[str] = Field([], examples=[["Synth-pop"]])
    spotify_id: str | SkipJsonSchema[None] = Known()
    apple_id: str | SkipJsonSchema[None] = Known()
    deezer_id: str | SkipJsonSchema[None] = Known()
    youtube_id: str | SkipJsonSchema[None] = Known()
    artwork_url: str | SkipJsonSchema[None] = Known(json_schema_extra={"format": "uri"})


class Identification(WireModel):
    """Who a recording is; fields that nobody knows are left out."""

    matched: bool = Field(description="Whether the track was identified.")
    artist: str | SkipJsonSchema[None] = Known(description="Present when matched.")
    title: str | SkipJsonSchema[None] = Known(description="Present when matched.")
    album: str | SkipJsonSchema[None] = Known()
    year: str | SkipJsonSchema[None] = Known()
    isrc: str | SkipJsonSchema[None] = Known()
    confidence: int = Field(0, ge=0, le=100, description="0 when unmatched.")
    source_service: str | SkipJsonSchema[None] = Known(
        description="Which service produced the match.", examples=["local"]
    )
    services_tried: dict[str, Literal["match", "no_match", "error", "skipped"]] = Field(
        description="Every service of the cascade, in order.",
        examples=[{"local": "match", "acoustid": "skipped"}],
    )
    enrichment: EnrichmentBody | None = Field(None, description="Null when unmatched.")
    meta: Meta = Field(alias="_meta")
