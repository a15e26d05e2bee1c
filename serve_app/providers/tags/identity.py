"""Reads a track's identity from a file's tags and name, with the source of every field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from serve_app.domain.identity import ID_FIELDS, TrackIdentity
from serve_app.domain.track_ids import (
    InvalidTrackIdError,
    Platform,
    TrackId,
    parse_track_id,
    track_id_of,
)
from serve_app.providers.tags.reader import Tags

TAGS, FILE_NAME = "tags", "file name"

# Picard's names of the recording's id in each format; ``ufid`` is ID3's own frame for it, which
# Picard and beets rewrite: a text frame next to it may be outdated.
_ID_TAGS = {
    Platform.MBID: ("ufid", "musicbrainztrackid", "musicbrainzrecordingid"),
    Platform.ISRC: ("isrc",),
    Platform.SPOTIFY: ("spotifytrackid", "spotifyid", "spotifytrackuri", "spotify"),
    Platform.APPLE: ("itunestrackid", "appletrackid", "appleid"),
    Platform.DEEZER: ("deezertrackid", "deezerid"),
    Platform.YOUTUBE: ("youtubeid", "youtubetrackid"),
}
_LINK_TAGS = ("url", "website", "www", "audiosourceurl", "comment", "description", "purl")
_ADDRESS = re.compile(r"(?:https?://|spotify:track:)[^\s\"'<>,;]{1,300}", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_YEAR = re.compile(
    r"(?:(?<!\d)|(?<=\d{4}))(1[89]\d\d|20\d\d)(?:(?:0\d|1[0-2])(?:[0-3]\d)?)?(?!\d)", re.ASCII
)
"""A year, alone or in a date, which some programs write without dashes: 20190512, 12052019."""
_YEAR_TAGS = (
    *("originalyear", "originaldate", "tdor", "tory", "originalreleaseyear"),
    *("date", "year"),
)
"""The first release, as Picard and beets name it in each format, before that of this edition."""
_NUMBER = re.compile(r"(?:0\d{1,2}[.\s-]+|\d{1,3}\s*[.-]\s*)(?=\D)", re.ASCII)
"""A track's number on its album, before its name: with a leading zero, a dot or a dash."""


@dataclass(frozen=True, slots=True)
class TaggedIdentity:
    """The identity of a track according to its file.

    Attributes:
        sources: Each known field, to `TAGS` or `FILE_NAME`.
    """

    identity: TrackIdentity
    sources: Mapping[str, str]


def identity_of(tags: Tags, path: Path, duration_s: float | None = None) -> TaggedIdentity:
    """Return a track's identity; without a title in the tags, the file's name is used."""
    known: dict[str, object] = _names(tags)
    known |= {ID_FIELDS[track_id.platform]: track_id.value for track_id in _ids(tags)}
    sources = dict.fromkeys(known, TAGS)
    if "title" not in known:
        named = _named_by_file(path)
        if "artist" in known:
            named.pop("artist", None)
        known |= named
        sources |= dict.fromkeys(named, FILE_NAME)
    identity = TrackIdentity(
        **known,  # type: ignore[arg-type]  # names come from the fields
        duration_s=duration_s,
        source=TAGS,
    )
    return TaggedIdentity(identity, MappingProxyType(sources))


def _names(tags: Tags) -> dict[str, object]:
    years = (_YEAR.search(tags.first(name) or "") for name in _YEAR_TAGS)
    year = next(filter(None, years), None)
    known: dict[str, object | None] = {
        "artist": tags.artist or None,
        "title": tags.title or None,
        "album": tags.first("album"),
        "year": None if year is None else int(year[1]),
        "label": tags.first("label", "publisher", "organization"),
        "genres": tags.fields.get("genre"),
    }
    return {name: value for name, value in known.items() if value is not None}


def _ids(tags: Tags) -> list[TrackId]:
    """Return at most one id of each platform: from a tag of its own, else from a link."""
    found: dict[Platform, TrackId] = {}
    for platform, names in _ID_TAGS.items():
        for text in (text for name in names for text in tags.fields.get(name, ())):
            track_id = _id_in(platform, text)
            if track_id is not None:
                found.setdefault(platform, track_id)
    for text in (text for name in _LINK_TAGS for text in tags.fields.get(name, ())):
        for address in _ADDRESS.findall(text):
            try:
                linked = parse_track_id(address)
            except InvalidTrackIdError:
                continue
            if isinstance(linked, TrackId) and linked.platform in ID_FIELDS:
                found.setdefault(linked.platform, linked)
    return list(found.values())


def _id_in(platform: Platform, text: str) -> TrackId | None:
    if platform is Platform.MBID:
        uuid = _UUID.search(text)  # in a UFID frame, its owner's address is before it
        text = "" if uuid is None else uuid[0]
    try:
        if "://" in text or text.startswith("spotify:"):
            parsed = parse_track_id(text)
            is_its = isinstance(parsed, TrackId) and parsed.platform is platform
            return TrackId(platform, parsed.value) if is_its else None
        return track_id_of(platform, text)
    except InvalidTrackIdError:
        return None


def _named_by_file(path: Path) -> dict[str, object]:
    stem = " ".join(path.stem.replace("_", " ").split())
    number = _NUMBER.match(stem)
    stem = stem[number.end() :] if number is not None else stem
    artist, dash, title = stem.partition(" - ")
    return {"artist": artist, "title": title} if dash and title else {"title": stem}
