"""What a file is: its bytes, its audio and its tags, read while it did not change."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pipelines.audio.decode import DecodeLimits, digest_packets
from pipelines.audio.waveform import AudioError
from serve_app.providers.tags.reader import Tags, read_tags

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)


class FileChangedError(Exception):
    """The file was written while it was read; the next scan reads it again."""

    def __init__(self) -> None:
        super().__init__("it changed while it was read; scan again")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What distinguishes a file from the same file after a write."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        """Read the stamp of a file.

        Raises:
            OSError: It cannot be read.
        """
        status = path.stat()
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def check(self, path: Path) -> None:
        """Check that the file has not changed.

        Raises:
            FileChangedError: It has changed.
            OSError: It cannot be read.
        """
        if Stamp.of(path) != self:
            raise FileChangedError


def holds_audio(path: Path, audio_sha256: str | None) -> bool:
    """Whether a file's audio has that digest or cannot be checked; its tags may differ."""
    if audio_sha256 is None:
        return True
    try:
        return digest_packets(path, LIMITS) == audio_sha256
    except AudioError:
        return False
    except OSError:
        return True


def hash_bytes(path: Path) -> str:
    """Return the hex SHA-256 of a file.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file is, apart from its location.

    Attributes:
        audio_sha256: Digest of the packets; see `pipelines.audio.decode.Decoder.digest_packets`.
    """

    content_sha256: str
    audio_sha256: str
    tags: Tags

    @classmethod
    def of(cls, path: Path, content_sha256: str) -> "Facts":
        """Read audio and tags of a file.

        Raises:
            AudioError: It is not audio.
            OSError: It cannot be read.
        """
        return cls(content_sha256, digest_packets(path, LIMITS), read_tags(path))
