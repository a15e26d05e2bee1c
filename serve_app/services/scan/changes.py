"""The changes of library tracks that a scan makes, as pure functions of the current track."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from serve_app.domain.identity import TrackIdentity
from serve_app.library.edit import Change
from serve_app.library.track import LibraryTrack, TrackFile
from serve_app.providers.tags.identity import FILE_NAME, TAGS, TaggedIdentity
from serve_app.services.scan.naming import CATALOG, SOUND

OURS = {TAGS, FILE_NAME, CATALOG, SOUND}
"""Sources that a scan may overwrite; values from any other source stay."""

LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class FileOf:
    """A file that belongs to a track.

    Attributes:
        replaces: Its former locations.
        is_another: Whether it is an additional file, which only adds to what is known.
    """

    track_id: str
    file: TrackFile
    named: TaggedIdentity
    replaces: Collection[str] = ()
    is_another: bool = False
    fingerprint: str | None = None

    def change(self) -> Change:
        """Return the change that puts the file into its track, creating it if needed."""

        def put(track: LibraryTrack | None) -> LibraryTrack | None:
            if track is None:
                return LibraryTrack(
                    self.track_id,
                    replace(self.named.identity, source=LIBRARY),
                    sources=dict(self.named.sources),
                    files=(self.file,),
                    fingerprint=self.fingerprint,
                )
            gone = {self.file.location, *self.replaces}
            kept = tuple(file for file in track.files if file.location not in gone)
            if self.is_another or (kept and self._knows_no_better(track)):
                identity, sources = _added(track, self.named)
            else:
                identity, sources = _renamed(track, self.named)
            return replace(
                track,
                identity=replace(identity, source=LIBRARY),
                sources=sources,
                files=(*kept, self.file),
                fingerprint=track.fingerprint or self.fingerprint,
            )

        return put

    def _knows_no_better(self, track: LibraryTrack) -> bool:
        """Whether it only moved, or its title is a file name while the track's is from tags."""
        title, known = self.named.sources.get("title"), track.sources.get("title")
        before = (file for file in track.files if file.location in self.replaces)
        has_moved = self.file.content_sha256 in {file.content_sha256 for file in before}
        return has_moved or (title == FILE_NAME and known != FILE_NAME)


def without_file(location: str) -> Change:
    """Remove a file from its track; a track without other files or tags is removed."""

    def take(track: LibraryTrack | None) -> LibraryTrack | None:
        if track is None:
            return None
        kept = tuple(file for file in track.files if file.location != location)
        return replace(track, files=kept) if kept or track.tags else None

    return take


def displaced(location: str, since: datetime) -> Change:
    """Remove a location, where another recording is now, from the track that had a file there.

    Unless another file of the track has its audio, it is kept as missing: it may have moved.
    """

    def take(track: LibraryTrack | None) -> LibraryTrack | None:
        if track is None:
            return None
        gone = [file for file in track.files if file.location == location]
        others = tuple(file for file in track.files if file.location != location)
        repeated = {file.audio_sha256 for file in others}
        if all(file.audio_sha256 in repeated for file in gone):
            return replace(track, files=others)
        return with_mark(location, since)(track)

    return take


def with_mark(location: str, since: datetime | None) -> Change:
    """Mark a file as missing, or as found again; a file already missing keeps its date."""

    def mark(track: LibraryTrack | None) -> LibraryTrack | None:
        if track is None:
            return None
        files = (
            replace(file, missing_since=since and (file.missing_since or since))
            if file.location == location
            else file
            for file in track.files
        )
        return replace(track, files=tuple(files))

    return mark


def now() -> datetime:
    """Return the current time, for a mark."""
    return datetime.now(UTC)


def _added(track: LibraryTrack, named: TaggedIdentity) -> tuple[TrackIdentity, Mapping[str, str]]:
    """Fill in what is unknown; tags also replace what another file's name said."""
    tagged = {
        name: getattr(named.identity, name)
        for name, source in named.sources.items()
        if source == TAGS and track.sources.get(name) == FILE_NAME
    }
    identity = replace(track.identity, **tagged).filled_from(named.identity)
    new = {
        name: source
        for name, source in named.sources.items()
        if getattr(identity, name) != getattr(track.identity, name)
    }
    return identity, {**track.sources, **new}


def _renamed(track: LibraryTrack, named: TaggedIdentity) -> tuple[TrackIdentity, Mapping[str, str]]:
    """Follow changed tags: what they said before is replaced, other sources' values stay."""
    said = {name: source for name, source in track.sources.items() if source not in OURS}
    kept = {name: getattr(track.identity, name) for name in said}
    known = {
        field.name: getattr(named.identity, field.name)
        for field in fields(TrackIdentity)
        if field.name in named.sources and field.name not in said
    }
    measured = {
        name: getattr(track.identity, name)
        for name in ("duration_s", "tempo", "key", "mode", "beats", "downbeats", "is_verified")
    }
    identity = TrackIdentity(**{**measured, **known, **kept})
    return identity, {**named.sources, **said}
