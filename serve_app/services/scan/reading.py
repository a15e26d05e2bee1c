"""Reads what can be known of a file before analysis: its digests and its track's identity."""

from pathlib import Path

from serve_app.library.track import TrackFile
from serve_app.providers.tags.identity import TaggedIdentity
from serve_app.services.scan.entries import kind_of
from serve_app.services.scan.facts import Facts, hash_bytes
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import Found


def read_file(found: Found, path: Path, naming: Naming) -> tuple[TrackFile, TaggedIdentity]:
    """Return the file as the library stores it, and its track's identity.

    Args:
        found: The file as listed.
        path: Where to read it.
        naming: Identifies tracks.

    Raises:
        AudioError: It is not audio.
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
