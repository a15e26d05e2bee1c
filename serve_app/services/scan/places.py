"""Where a scan looks for audio: a folder, single files, a bucket.

Invariant: listing changes nothing. A file or folder that cannot be listed is reported by name; what
is below such a folder is then unknown, not missing.
"""

import asyncio
import errno
import mimetypes
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError as StoreError
from obstore.store import ObjectStore

from serve_app.services.failure import reason_of
from serve_app.store.objects import open_backend

AUDIO_ENDINGS = {
    *(".mp3", ".wav", ".flac", ".ogg", ".opus", ".m4a", ".mp4", ".aac", ".aiff", ".webm", ".mka"),
    *(".mp2", ".wave", ".oga", ".aif", ".aifc", ".m4b"),
    *(".wma", ".ac3", ".eac3", ".wv", ".tta", ".au", ".caf", ".w64", ".ape", ".amr", ".3gp"),
    *(".mpc", ".mp+", ".dsf", ".dff"),
}

LEADS_NOWHERE = "the link leads nowhere; is its disk mounted?"

BINS = {"$recycle.bin", "#recycle", "@recycle", "#snapshot", "@recently-snapshot"}
"""Folders in which Windows, Synology and QNAP keep what was deleted, and copies of everything."""

FULL = {errno.ENOSPC, errno.EDQUOT}
"""Error numbers of a full disk."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file as listed.

    Attributes:
        location: An absolute path, an ``s3://`` or a web address.
        size_bytes: None for a web address, which is not queried for it.
        mtime_ns: Likewise.
        ctime_ns: When the system last recorded a change of it, which no program can set back; None
            if it is not a file of this machine.
    """

    location: str
    size_bytes: int | None
    mtime_ns: int | None
    ctime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a file or a folder."""

    location: str
    message: str


class Place(Protocol):
    """Something that holds audio files.

    Attributes:
        root: Location in a `Trouble` about all of it, after which its contents are unknown. What a
            folder, a file or a bucket holds begins with it.
    """

    root: str

    def find(self) -> Iterator[Found | Trouble]:
        """List the audio files."""
        ...

    def holds(self, location: str) -> bool:
        """Whether a file at this location would have been listed."""
        ...

    def at_hand(self, found: Found) -> AbstractContextManager[Path]:
        """Return a path to read the file from.

        Raises:
            OSError: It cannot be read.
        """
        ...


class Folder:
    """All audio below a folder, once; hidden names and recycle bins are skipped, links followed."""

    def __init__(self, root: Path) -> None:
        self.root = str(absolute(root))

    def find(self) -> Iterator[Found | Trouble]:
        """See `Place`."""
        seen: set[tuple[int, int]] = set()
        todo = [self.root]
        while todo:  # linked folders come last, so that a file keeps its own name
            yield from self._below(todo.pop(0), seen, todo)

    def _below(
        self, root: str, seen: set[tuple[int, int]], linked: list[str]
    ) -> Iterator[Found | Trouble]:
        """List a tree except for folders already seen; linked folders are kept for later."""
        troubles: list[Trouble] = []

        def note(error: OSError) -> None:
            troubles.append(Trouble(str(error.filename), reason_of(error)))

        for folder, names, files in os.walk(root, onerror=note):
            try:
                status = os.stat(folder)
            except OSError as error:
                note(error)
                names.clear()
                continue
            if (status.st_dev, status.st_ino) in seen:
                names.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            names[:] = sorted(filter(_is_shown, names))
            below = (os.path.join(folder, name) for name in names)
            linked += [path for path in below if os.path.islink(path)]
            for name in sorted(filter(_is_shown, files)):
                path = Path(folder, name)
                if path.suffix.lower() in AUDIO_ENDINGS:
                    yield listed(path)
                elif mimetypes.guess_type(name)[0] is None and _leads_nowhere(path):
                    yield Trouble(str(path), LEADS_NOWHERE)
            yield from troubles
            troubles.clear()
        yield from troubles

    def holds(self, location: str) -> bool:
        """See `Place`."""
        return location.startswith(f"{self.root}{os.sep}".replace("//", "/"))

    def at_hand(self, found: Found) -> AbstractContextManager[Path]:
        """See `Place`."""
        return nullcontext(Path(found.location))


class SingleFile:
    """One file, whatever its extension."""

    def __init__(self, path: Path) -> None:
        self._path = absolute(path)
        self.root = str(self._path)

    def find(self) -> Iterator[Found | Trouble]:
        """See `Place`."""
        yield listed(self._path)

    def holds(self, location: str) -> bool:
        """See `Place`."""
        return location == self.root

    def at_hand(self, found: Found) -> AbstractContextManager[Path]:
        """See `Place`."""
        return nullcontext(Path(found.location))


class Bucket:
    """All audio below a prefix of an S3 store, but for names that a `Folder` skips.

    A file is fetched to be read, then deleted.
    """

    def __init__(self, url: str) -> None:
        """Open the store.

        Args:
            url: As `serve_app.store.objects.open_backend` accepts it.

        Raises:
            ValueError: It does not accept the address.
        """
        parts = urlsplit(url)
        self.root = f"s3://{parts.netloc}{parts.path}".rstrip("/") + "/"
        self._backend = open_backend(url)

    def find(self) -> Iterator[Found | Trouble]:
        """See `Place`."""
        try:
            for page in obstore.list(self._backend):
                for entry in page:
                    path = Path(entry["path"])
                    if path.suffix.lower() in AUDIO_ENDINGS and all(map(_is_shown, path.parts)):
                        mtime_ns = int(entry["last_modified"].timestamp() * 1e9)
                        yield Found(self.root + entry["path"], entry["size"], mtime_ns)
        except OSError as error:
            yield Trouble(self.root, reason_of(error))
        except StoreError as error:
            yield Trouble(self.root, _first_line(error))

    def holds(self, location: str) -> bool:
        """See `Place`."""
        return location.startswith(self.root)

    @contextmanager
    def at_hand(self, found: Found) -> Iterator[Path]:
        """See `Place`."""
        with fetched(self._backend, found.location.removeprefix(self.root)) as path:
            yield path


@asynccontextmanager
async def at_hand(place: Place, found: Found) -> AsyncIterator[Path]:
    """Yield a path to read a file from; what is fetched from a bucket holds up nothing else."""
    with ExitStack() as stack:
        yield await asyncio.to_thread(stack.enter_context, place.at_hand(found))


def absolute(path: Path) -> Path:
    """Return the absolute path that identifies a file, wherever the command is run."""
    path = path.absolute()
    if ".." not in path.parts:
        return path
    after = len(path.parts) - path.parts[::-1].index("..")
    return Path(*path.parts[:after]).resolve().joinpath(*path.parts[after:])


def object_at(address: str) -> tuple[ObjectStore, str]:
    """Return the store and the key of an ``s3://bucket/key``."""
    bucket, _, key = address.removeprefix("s3://").partition("/")
    return open_backend(f"s3://{bucket}"), key


@contextmanager
def fetched(store: ObjectStore, key: str) -> Iterator[Path]:
    """Fetch an object to read it.

    Raises:
        OSError: It does not exist, or the store does not answer.
    """
    with TemporaryDirectory(prefix="afa-scan-") as folder:
        path = Path(folder) / Path(key).name
        try:
            with path.open("wb") as file:
                for block in obstore.get(store, key):
                    file.write(block)
        except StoreError as error:
            raise OSError(_first_line(error)) from error
        yield path


def _first_line(error: StoreError) -> str:
    """Return the store's message without the lines that follow for debugging."""
    return str(error).partition("\n")[0]


def _is_shown(name: str) -> bool:
    """Whether a name has no leading dot, or several as a title may have, and is no recycle bin."""
    is_hidden = name.startswith(".") and not name.startswith("..")
    return not is_hidden and name.lower() not in BINS


def _leads_nowhere(path: Path) -> bool:
    # Not with Path's own methods, which fail if a name is too long.
    return os.path.islink(path) and not os.path.exists(path)


def listed(path: Path) -> Found | Trouble:
    """List one file."""
    location = str(path)
    try:
        location.encode()
        status = path.stat()
    except UnicodeEncodeError:
        readable = location.encode(errors="replace").decode()
        return Trouble(readable, "the name is not UTF-8; rename the file")
    except ValueError:
        return Trouble(location.replace("\0", "\\0"), "no file has a zero byte in its name")
    except OSError as error:
        return Trouble(location, LEADS_NOWHERE if _leads_nowhere(path) else reason_of(error))
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
        return Trouble(location, "not a plain file")
    return Found(location, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
