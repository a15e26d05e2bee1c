"""Tracks of the library on the wire."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from pipelines.analysis.tonality.notes import mode_name, pitch_class
from serve_app.api.wire.bodies import Meta, Percent, RequestModel, Unit, WireModel
from serve_app.api.wire.forms import PLAIN, AssetId, Form
from serve_app.api.wire.meanings import ARTIST, IDS, META, TITLE
from serve_app.domain.track_ids import LIBRARY_PREFIX
from serve_app.library.measures import measures_of
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.services.library import LibraryMap

MAX_TAGS = 64
CAMELOT = "^(?:1[0-2]|[1-9])[AB]$"
NOT_BLANK = r"[^ \t\r\n]"
"""Listed one by one, because which other characters are spaces differs between regex engines."""


def _trimmed(text: str) -> str:
    return text.strip(" \t\r\n")


SAYS_SOMETHING = Form(NOT_BLANK, "should not be blank")
Name = Annotated[str, Field(min_length=1, max_length=500), SAYS_SOMETHING, AfterValidator(_trimmed)]
Tag = Annotated[str, Field(min_length=1, max_length=64), SAYS_SOMETHING, AfterValidator(_trimmed)]
Year = Annotated[int, Field(ge=1000, le=2999), PLAIN]


CamelotKey = Annotated[
    str,
    Form(CAMELOT, "should be on the Camelot wheel: minor keys are 1A to 12A, major ones 1B to 12B"),
]
Ids = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=2048)]],
    Field(
        max_length=16,
        description="Identifiers in any form that look-ups accept, such as `isrc:QZAFA2600001`.",
        examples=[["isrc:QZAFA2600001"]],
    ),
]


class TrackNames(RequestModel):
    """What its owner says of a track."""

    ids: Ids = Field(default_factory=list)
    artist: Name | None = Field(None, description="Name of the artist.")
    title: Name | None = Field(None, description="Title of the track.")
    album: Name | None = Field(None, description="Album or single it is on.")
    year: Year | None = Field(None, description="Year of that release.")


class LibraryNames(TrackNames):
    """What its owner says of a track that is new."""

    tags: list[Tag] = Field(
        default_factory=list, max_length=MAX_TAGS, description="Your own words for the track."
    )


class LibraryAddRequest(LibraryNames):
    """Audio, and what is known of it."""

    asset_id: AssetId | None = Field(
        None,
        description="As returned by `POST /v1/assets/upload`.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    url: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Public HTTP(S) address that returns audio bytes directly.",
        json_schema_extra={"format": "uri"},
    )

    @model_validator(mode="after")
    def _one_place(self) -> "LibraryAddRequest":
        if (self.asset_id is None) == (self.url is None):
            raise ValueError("name either asset_id or url")
        return self


class LibraryChangeRequest(TrackNames):
    """What to change: fields left out stay, null clears a field, `ids` are added."""

    tags: list[Tag] | None = Field(
        None,
        max_length=MAX_TAGS,
        description="All tags of the track; they replace the present ones.",
    )


class LibraryFile(WireModel):
    """Where the audio of one of your tracks is."""

    place: Literal["path", "asset", "url"] = Field(description="What `location` is.")
    location: str = Field(description="Path, asset id or address.")
    missing_since: datetime | None = Field(
        description="When it was first missing; null if it is there."
    )


class LibraryTrackBody(WireModel):
    """A track of the library."""

    id: str = Field(
        pattern=f"^{LIBRARY_PREFIX}",
        description="Id of the track; every look-up accepts it.",
        examples=["trk_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    shared: bool = Field(
        description="Whether it belongs to the operator; every key sees such tracks."
    )
    artist: str = Field(description=ARTIST)
    title: str = Field(description=TITLE)
    album: str | None = Field(description="Album or single it is on.")
    year: int | None = Field(description="Year of that release.")
    mbid: str | None = Field(description=IDS["mbid"])
    isrc: str | None = Field(description=IDS["isrc"])
    spotify_id: str | None = Field(description=IDS["spotify_id"])
    apple_id: str | None = Field(description=IDS["apple_id"])
    deezer_id: str | None = Field(description=IDS["deezer_id"])
    youtube_id: str | None = Field(description=IDS["youtube_id"])
    duration_s: float | None = Field(description="Length in seconds; null when unknown.")
    tempo: float | None = Field(description="BPM; null before the analysis.")
    key: str | None = Field(description="Pitch class, C to B; null when there is none.")
    mode: str | None = Field(description="`major` or `minor`; null when there is no key.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: Percent | None = Field(description="0 to 100; null before the analysis.")
    tags: list[str] = Field(description="Tags that the owner set.")
    files: list[LibraryFile] = Field(
        description="Files of your own track; empty for the operator's tracks."
    )
    sources: dict[str, str] = Field(description="For each field, where its value comes from.")
    added_at: datetime | None = Field(description="When it was added.")
    changed_at: datetime | None = Field(description="When it last changed.")
    analysed_at: datetime | None = Field(description="When it was analysed; null before that.")


class LibraryAnswer(WireModel):
    """One track."""

    track: LibraryTrackBody = Field(description="The track as it is now.")
    meta: Meta = Field(alias="_meta", description=META)


class LibraryAdded(LibraryAnswer):
    """A track that was added, and the job that analyses it."""

    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="State of that job."
    )
    job_id: str = Field(description="Poll `GET /v1/jobs/{job_id}`.")


class LibraryList(WireModel):
    """One page of tracks, in the requested order."""

    items: list[LibraryTrackBody] = Field(description="Tracks that match the query.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(ge=0, description="Number of items in this page.")
    meta: Meta = Field(alias="_meta", description=META)


class MappedTrackBody(WireModel):
    """A track and its place on the map; tracks that sound alike are close together."""

    id: str = Field(description="Id of the track; every look-up accepts it.")
    x: float = Field(ge=-1, le=1, description="Position to the right.")
    y: float = Field(ge=-1, le=1, description="Position upwards.")
    artist: str = Field(description=ARTIST)
    title: str = Field(description=TITLE)
    tempo: float | None = Field(description="BPM.")
    camelot: str | None = Field(description="Camelot wheel notation; null when there is no key.")
    energy: Percent | None = Field(description="0 to 100.")


class LibraryMapBody(WireModel):
    """The library on a plane: its embeddings along the two directions in which they differ most."""

    model: str | None = Field(
        description="Model of the embeddings: the one that most tracks have an embedding of; null "
        "if no track has any.",
        examples=["afa-embed-1"],
    )
    items: list[MappedTrackBody] = Field(
        description="At most 2,000 tracks; if there are more, an even sample."
    )
    total: int = Field(ge=0, description="Tracks that have such an embedding, shown or not.")
    variance_shown: Unit = Field(
        description="How much of the embeddings' variance the plane shows. If it is low, tracks "
        "that are close together may still sound different."
    )
    meta: Meta = Field(alias="_meta", description=META)


def map_body(drawn: LibraryMap, meta: Meta) -> LibraryMapBody:
    """Write a map."""
    items = [
        MappedTrackBody(
            id=one.track.track_id,
            x=round(one.x, 4),
            y=round(one.y, 4),
            artist=one.track.identity.artist,
            title=one.track.identity.title,
            tempo=None if one.track.tempo is None else round(one.track.tempo, 3),
            camelot=one.track.camelot,
            energy=one.track.energy,
        )
        for one in drawn.items
    ]
    return LibraryMapBody(
        model=drawn.model,
        items=items,
        total=drawn.total,
        variance_shown=round(drawn.shown, 3),
        meta=meta,
    )


def track_body(track: LibraryTrack) -> LibraryTrackBody:
    """Describe a track to a caller who may see it, without the paths of the operator's files."""
    who = track.identity
    heard = None if track.analysis is None else track.analysis.features
    measures = measures_of(track)
    is_shared = track.owner == OPERATOR
    return LibraryTrackBody(
        id=track.track_id,
        shared=is_shared,
        artist=who.artist,
        title=who.title,
        album=who.album,
        year=who.year,
        mbid=who.mbid,
        isrc=who.isrc,
        spotify_id=who.spotify_id,
        apple_id=who.apple_id,
        deezer_id=who.deezer_id,
        youtube_id=who.youtube_id,
        duration_s=who.duration_s if heard is None else heard.duration_s,
        tempo=None if measures.tempo is None else round(measures.tempo, 3),
        key=None if measures.key is None else pitch_class(measures.key),
        mode=None if measures.mode is None else mode_name(measures.mode),
        camelot=measures.camelot,
        energy=measures.energy,
        tags=list(track.tags),
        files=[
            LibraryFile(
                place=file.place.value, location=file.location, missing_since=file.missing_since
            )
            for file in track.files
            if not is_shared
        ],
        sources=dict(track.sources),
        added_at=track.added_at,
        changed_at=track.changed_at,
        analysed_at=None if track.analysis is None else track.analysis.made_at,
    )
