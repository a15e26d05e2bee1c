"""Which segments make up a fingerprint index: one small file, swapped atomically.

Readers and the builder rely on it alone: a segment is complete before a manifest names it,
and is deleted only after a manifest without it is in place.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from models.fingerprint.landmarks import MODEL_ID
from serve_app.library.dataset import sync

FILE_NAME = "manifest.json"


class FingerprintIndexError(Exception):
    """The index folder is missing, damaged, busy, or made by another fingerprint."""


class NoIndexError(FingerprintIndexError):
    """The folder holds no index yet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} holds no fingerprint index; `afa catalog fingerprint FOLDER` makes one"
        )


class IndexBusyError(FingerprintIndexError):
    """Another process is changing the index."""


class DamagedIndexError(FingerprintIndexError):
    """Files of the index are missing, or are not as they were written."""

    def __init__(self, folder: Path, fault: Exception) -> None:
        super().__init__(
            f"{folder} is damaged ({fault}): remove it, and make it again with `afa catalog "
            "fingerprint`, for the tracks of the library with `--library`"
        )


class OutdatedIndexError(FingerprintIndexError):
    """The index was made by another fingerprint: its tracks must be fingerprinted again."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment in use.

    Attributes:
        name: Its folder's name.
        n_tracks: Tracks in it, dropped ones included.
        n_postings: Hashes in it.
        dropped: Indexes of its tracks that were removed or replaced.
    """

    name: str
    n_tracks: int
    n_postings: int
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All segments in use, oldest first."""

    segments: tuple[SegmentEntry, ...] = ()

    @property
    def n_tracks(self) -> int:
        """The number of tracks that can be found."""
        return sum(s.n_tracks - len(s.dropped) for s in self.segments)


def read_manifest(folder: Path) -> Manifest:
    """Read an index's manifest.

    Raises:
        NoIndexError: There is no index.
        OutdatedIndexError: It was made by another fingerprint.
        DamagedIndexError: It is damaged.
    """
    try:
        raw = json.loads((folder / FILE_NAME).read_text("utf-8"))
        if raw["model_id"] != MODEL_ID:
            raise OutdatedIndexError(
                f"{folder} was made with {raw['model_id']}, this is {MODEL_ID}: "
                "fingerprint its tracks again with `afa catalog fingerprint`, those of the library "
                "with `--library`."
            )
        return Manifest(
            tuple(
                SegmentEntry(s["name"], s["n_tracks"], s["n_postings"], tuple(s["dropped"]))
                for s in raw["segments"]
            )
        )
    except FileNotFoundError as error:
        raise NoIndexError(folder) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedIndexError(folder, error) from error


def generation_of(folder: Path) -> str:
    """Return a name for the state of an index, which every change renews; "" if there is none."""
    try:
        return hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def is_current(folder: Path) -> bool:
    """Return whether there is an index that this version can read.

    Raises:
        FingerprintIndexError: It is damaged.
    """
    try:
        read_manifest(folder)
    except (NoIndexError, OutdatedIndexError):
        return False
    return True


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in place: readers see the old one or the new one, even after a crash."""
    body = {
        "model_id": MODEL_ID,
        "segments": [asdict(entry) for entry in manifest.segments],
    }
    temporary = folder / (FILE_NAME + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(body, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / FILE_NAME)
    sync(folder)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other builders out of a folder; the lock ends with its process.

    Raises:
        IndexBusyError: Another builder is running.
    """
    import fcntl

    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise IndexBusyError(f"Another process is changing {folder}.") from error
        yield
