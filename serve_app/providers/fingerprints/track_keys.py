"""Track keys of the fingerprint index: an identifier (also the library's), or a file's path."""

from pathlib import PurePath

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import AmbiguousTrackId, InvalidTrackIdError, parse_track_id
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR
from serve_app.providers.catalog.search import Catalog

FILE_PREFIX = "file:"
SEPARATOR = " - "


def key_of_file(path: PurePath) -> str:
    """Return a key from the absolute path of a file that neither library nor catalog has."""
    return FILE_PREFIX + path.as_posix()


def file_of_key(key: str) -> PurePath | None:
    """Return the path of a file's key; None for any other."""
    return PurePath(key.removeprefix(FILE_PREFIX)) if key.startswith(FILE_PREFIX) else None


def key_of_identity(identity: TrackIdentity) -> str | None:
    """Return the key of a catalog row: its best identifier; None if it has none."""
    best = next(identity.ids(), None)
    return None if best is None else str(best)


def identity_of_key(
    catalog: Catalog, key: str, library: Library | None = None
) -> TrackIdentity | None:
    """Return the identity for a key: the operator's track, the catalog's row, or the file's name.

    A file's name is read as ``Artist - Title.mp3``.
    """
    if (file := file_of_key(key)) is not None:
        artist, separator, title = file.stem.partition(SEPARATOR)
        if separator:
            return TrackIdentity(artist=artist.strip(), title=title.strip(), source="file name")
        return TrackIdentity(title=file.stem, source="file name")
    try:
        track_id = parse_track_id(key)
    except InvalidTrackIdError:
        return None
    if isinstance(track_id, AmbiguousTrackId):
        return None
    hits = library.by_id(track_id, [OPERATOR]) if library is not None else []
    return hits[0].identity if hits else catalog.by_id(track_id)
