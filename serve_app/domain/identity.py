"""What a track is: its identifiers, its names and what a curator has verified."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import pydantic_core

from serve_app.domain.errors import BadRequestError
from serve_app.domain.track_ids import InvalidTrackIdError, Platform, TrackId, parse_track_id


@dataclass(frozen=True, slots=True)
class TrackIdentity:
    """One recording across platforms. Everything but the names may be unknown.

    Attributes:
        mbid: MusicBrainz recording id, lower-case.
        isrc: Normalised, 12 characters.
        duration_s: Length of the whole recording in seconds.
        audio_url: Lawful audio of it: an ``https`` address, or a path relative to the folder that
            the catalog was imported from.
        tempo: BPM.
        key: Pitch class, C = 0 … B = 11.
        mode: 1 major, 0 minor.
        beats: Beat times in seconds, ascending; ``downbeats`` is a subset of it.
        is_verified: A person checked tempo, key and beats, so they win over computed ones.
        source: Who says so: ``library``, ``catalog``, ``acousticbrainz`` or a provider's name.
        library_id: The id of this track in the library, if it is there.
    """

    artist: str = ""
    title: str = ""
    mbid: str | None = None
    isrc: str | None = None
    spotify_id: str | None = None
    apple_id: str | None = None
    deezer_id: str | None = None
    youtube_id: str | None = None
    album: str | None = None
    year: int | None = None
    label: str | None = None
    genres: tuple[str, ...] = ()
    duration_s: float | None = None
    audio_url: str | None = None
    artwork_url: str | None = None
    tempo: float | None = None
    key: int | None = None
    mode: int | None = None
    beats: tuple[float, ...] = ()
    downbeats: tuple[float, ...] = ()
    is_verified: bool = False
    source: str = "catalog"
    library_id: str | None = None

    def ids(self) -> Iterator[TrackId]:
        """Yield every known identifier."""
        for platform, value in zip(ID_FIELDS, _all_ids(self), strict=True):
            if value is not None:
                yield TrackId(platform, value)

    def id_of(self, platform: Platform) -> str | None:
        """Return the identifier of a platform, if known."""
        name = ID_FIELDS.get(platform)
        value = getattr(self, name) if name is not None else None
        return value if isinstance(value, str) else None

    def said(self) -> list[str]:
        """Return the names of the fields that say something about the recording."""
        return [
            name
            for name, usual in _DEFAULTS.items()
            if name not in ("source", "library_id") and getattr(self, name) != usual
        ]

    def filled_from(self, other: "TrackIdentity") -> "TrackIdentity":
        """Return a copy whose unknown fields come from ``other``; known ones are never replaced.

        Tempo, key, mode, beats and their verification go together, so that they stay consistent.
        """
        changes: dict[str, object] = {}
        for field in fields(self):
            if field.name in _MEASURED or field.name == "source":
                continue
            if getattr(self, field.name) in (None, "", ()):
                changes[field.name] = getattr(other, field.name)
        if all(getattr(self, name) in (None, ()) for name in _MEASURED[:-1]):
            changes.update({name: getattr(other, name) for name in _MEASURED})
        return replace(self, **changes)  # type: ignore[arg-type]  # names come from the fields


ID_FIELDS = {
    Platform.MBID: "mbid",
    Platform.ISRC: "isrc",
    Platform.SPOTIFY: "spotify_id",
    Platform.APPLE: "apple_id",
    Platform.DEEZER: "deezer_id",
    Platform.YOUTUBE: "youtube_id",
}
"""The field for each platform's identifier, best hub first."""

_MEASURED = ("tempo", "key", "mode", "beats", "downbeats", "is_verified")

_LISTS = ("genres", "beats", "downbeats")

_DEFAULTS = {field.name: field.default for field in fields(TrackIdentity)}
_all_values = attrgetter(*_DEFAULTS)
_all_ids = attrgetter(*ID_FIELDS.values())


def to_json(identity: TrackIdentity) -> bytes:
    """Return the known fields as compact JSON."""
    found = zip(_DEFAULTS.items(), _all_values(identity), strict=True)
    return pydantic_core.to_json({name: value for (name, usual), value in found if value != usual})


def from_json(body: bytes) -> TrackIdentity:
    """Read what `to_json` wrote."""
    return from_fields(pydantic_core.from_json(body))


def from_fields(known: Mapping[str, Any]) -> TrackIdentity:
    """As `from_json`, for JSON that is already parsed."""
    lists = {name: tuple(known[name]) for name in _LISTS if name in known}
    return TrackIdentity(**{**known, **lists})


def fields_of_ids(texts: Sequence[str]) -> dict[str, object]:
    """Return the fields for these identifiers.

    Raises:
        BadRequestError: One is not an identifier, may be Apple's or Deezer's, or is of a platform
            that tracks are not known by.
    """
    known: dict[str, object] = {}
    for text in texts:
        try:
            track_id = parse_track_id(text)
        except InvalidTrackIdError as error:
            raise BadRequestError(f"ids: {error}") from error
        if not isinstance(track_id, TrackId):
            raise BadRequestError(f"ids: write {track_id.apple} or {track_id.deezer}")
        if track_id.platform not in ID_FIELDS:
            raise BadRequestError(f"ids: tracks are not kept by {track_id.platform.value} ids")
        known[ID_FIELDS[track_id.platform]] = track_id.value
    return known
