"""A track as a row of the shared dataset: fields for finding and filtering it, and its record."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from serve_app.domain import identity as identity_json
from serve_app.domain.identity import TrackIdentity
from serve_app.library.measures import measures_of
from serve_app.library.query import SERVER, tag_term
from serve_app.library.spelling import text_key
from serve_app.library.track import LibraryTrack, TrackFile, pack

COMPRESSED = {"lance-encoding:compression": "zstd"}
SCHEMA = pa.schema(
    [
        pa.field("track_id", pa.string(), nullable=False),
        pa.field("owner", pa.string(), nullable=False),
        pa.field("revision", pa.int64(), nullable=False),
        pa.field("write_id", pa.string(), nullable=False),
        pa.field("artist", pa.string()),
        pa.field("title", pa.string()),
        pa.field("album", pa.string()),
        pa.field("year", pa.int32()),
        pa.field("tempo", pa.float64()),
        pa.field("camelot", pa.string()),
        pa.field("energy", pa.int32()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("terms", pa.list_(pa.string())),
        pa.field("identity", pa.binary(), metadata=COMPRESSED),
        pa.field("record", pa.binary()),
    ]
)
"""A removed track keeps its first four columns, so that every view learns of it."""

MIN_TAG_SCORE = 0.1
"""Least score of a tag from the analysis; with less a track is not one of that tag."""

MODEL = "model:"


def table_of(
    here: Sequence[LibraryTrack], gone: Sequence[LibraryTrack], write_id: str, schema: pa.Schema
) -> pa.Table:
    """Write tracks as rows: those to store, and those to remove in their known state."""
    rows = [_place(track, track.revision, write_id) | _content(track) for track in here]
    rows += [_place(track, track.revision + 1, write_id) for track in gone]
    return pa.Table.from_pylist(rows, schema=schema)


def _place(track: LibraryTrack, revision: int, write_id: str) -> dict[str, object]:
    return {
        "track_id": track.track_id,
        "owner": track.owner,
        "revision": revision,
        "write_id": write_id,
    }


def _content(track: LibraryTrack) -> dict[str, object]:
    who, measures = track.identity, measures_of(track)
    return {
        "artist": who.artist,
        "title": who.title,
        "album": who.album,
        "year": who.year,
        "tempo": measures.tempo,
        "camelot": measures.camelot,
        "energy": measures.energy,
        "tags": list(tags_of(track)),
        "terms": list(dict.fromkeys(_terms(track))),
        "identity": identity_json.to_json(who),
        "record": pack(track),
    }


def tags_of(track: LibraryTrack) -> list[str]:
    """Return the owner's tags, the genres, and the analysis's clear tags; none twice."""
    heard = [] if track.analysis is None else track.analysis.features.mood_tags
    names = [*track.tags, *track.identity.genres]
    names += [one.tag for one in heard if one.score >= MIN_TAG_SCORE]
    return list({name.casefold(): name for name in reversed(names)}.values())[::-1]


def name_term(artist: str, title: str) -> str:
    """Return the term of all tracks with the same normalised name."""
    return f"name:{text_key(artist, title)}"


def location_term(location: str) -> str:
    """Return the term of the track that has a file at a location."""
    return f"at:{location}"


def content_term(sha256: str) -> str:
    """Return the term of the track that has a file of these bytes."""
    return f"content:{sha256}"


def audio_term(sha256: str) -> str:
    """Return the term of the track that has a file of this audio."""
    return f"audio:{sha256}"


def item_term(item_id: str) -> str:
    """Return the term of the tracks that have this id at media servers."""
    return f"item:{item_id}"


def item_artist_term(artist_id: str) -> str:
    """Return the term of the tracks whose artist has this id at media servers."""
    return f"item-artist:{artist_id}"


def model_term(model: str) -> str:
    """Return the term of all tracks that have a vector of a model."""
    return f"{MODEL}{model}"


def terms_of(identity: TrackIdentity, file: TrackFile) -> list[str]:
    """Return the terms that identify a track: of its identifiers, and of a file's bytes."""
    terms = [str(one) for one in identity.ids()]
    if file.content_sha256 is not None:
        terms.append(content_term(file.content_sha256))
    return terms


def _terms(track: LibraryTrack) -> Iterator[str]:
    for track_id in track.identity.ids():
        yield str(track_id)
    if track.identity.artist and track.identity.title:
        yield name_term(track.identity.artist, track.identity.title)
    for tag in tags_of(track):
        yield tag_term(tag)
    for model in track.embeddings:
        yield model_term(model)
    for item in track.items:
        yield item_term(item.item_id)
        if item.artist_id is not None:
            yield item_artist_term(item.artist_id)
        yield f"{SERVER}{item.server}"
    for file in track.files:
        yield location_term(file.location)
        if file.content_sha256 is not None:
            yield content_term(file.content_sha256)
        if file.audio_sha256 is not None:
            yield audio_term(file.audio_sha256)
