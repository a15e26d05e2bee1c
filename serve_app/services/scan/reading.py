"""What there is to know of a file before it is analysed: its digests, and who its track is."""

from pathlib import Path

from serve_app.library.track import TrackFile
from serve_app.providers.tags.identity import TaggedIdentity
from serve_app.services.scan.entries import kind_of
from serve_app.services.scan.facts import Facts, hash_bytes
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import Found


def read_file(found: Found, path: Path, naming: Naming) -> tuple[TrackFile, TaggedIdentity]:
    """Return the file as the library keeps it, and who its track is.

    Args:
        found: As it was listed.
        path: Where to read it.
        naming: Who tracks are.

    Raises:
        AudioError: It is no audio.
        OSError: It cannot be read.
    """
    facts = Facts.of(path, hash_bytes(path))
    file = TrackFile(
        kind_of(found.location),
        found.location,
        facts.content_sha256,
        facts.audio_sha256,
        found.size_bytes,
        found.mtime_ns,
        found.ctime_ns,
    )
    return file, naming.name(facts.tags, path, Path(found.location))
