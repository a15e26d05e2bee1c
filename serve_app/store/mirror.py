"""Folders that every node of a cluster reads, published once and fetched by each.

A publication is a listing of files by digest. It is written after all files that it names, and it
names the one that switches readers over (a symbolic link, a manifest) last. A node puts them in
place in that order: a reader finds one publication or the next, never a mixture.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import obstore

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.telemetry.metrics import PUBLISHED
from serve_app.store.objects import answering, open_backend

logger = logging.getLogger(__name__)

LISTING = "current.json"
FETCHED = "published.json"
LOCK = "published.lock"
OWN_LOCK = "lock"
"""Lock file of the process that writes to a place on this machine."""
FOLLOW_S = 30.0
BLOCK_BYTES = 1 << 20


class DamagedPublicationError(RuntimeError):
    """What was fetched is not what was published."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that is published.

    Attributes:
        name: Path below the common folder; "" is that folder, of which only the switch counts.
        switch: What readers look at first: a link into the folder, or a file.
    """

    name: str
    switch: str

    def files(self, folder: Path) -> Iterator[Path]:
        """Yield the files to publish, the switch last."""
        switch = folder / self.name / self.switch
        if not switch.exists():
            return
        found = switch.resolve() if switch.is_symlink() else switch.parent
        for path in sorted(found.rglob("*")) if self.name else ():
            if path.is_file() and path != switch and path.name != OWN_LOCK:
                yield path
        if not switch.is_symlink():
            yield switch


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Mirror:
    """Publishes the places of a folder to a store, or brings a folder to what is published.

    Args:
        url: Address of the store, as for `open_backend`.
        folder: Folder on this machine that contains the places.
        places: The folders that belong together.
        name: Name that operators use.
        is_whole: Whether a fetch deletes files of the places that the publication lacks.
    """

    def __init__(
        self, url: str, folder: Path, places: Sequence[Place], name: str, *, is_whole: bool = True
    ) -> None:
        self._backend = open_backend(url)
        self._folder = folder
        self.name = name
        self._is_whole = is_whole
        self._places = places
        self._closing = Event()
        self._shown = ""

    def publish(self) -> str:
        """Publish what this machine has; return its generation.

        Raises:
            ServiceUnavailableError: The store is full or unavailable; the last publication stays.
        """
        files, links = {}, {}
        for place in self._places:
            switch = self._folder / place.name / place.switch
            if switch.is_symlink():
                links[f"{place.name}/{place.switch}"] = str(switch.readlink())
            for path in place.files(self._folder.resolve()):
                name = path.relative_to(self._folder.resolve()).as_posix()
                files[name] = {"sha256": digest_of(path), "bytes": path.stat().st_size}
        with answering():
            there = {
                Path(meta["path"]).name
                for batch in obstore.list(self._backend, "blobs")
                for meta in batch
            }
            for name, entry in files.items():
                if entry["sha256"] not in there:
                    obstore.put(self._backend, f"blobs/{entry['sha256']}", self._folder / name)
            listing = json.dumps({"version": 1, "files": files, "links": links}).encode()
            obstore.put(self._backend, LISTING, listing)
        return generation_of(listing)

    def fetch(self) -> str:
        """Fetch what is published; return its generation, or "" if there is none.

        Raises:
            ServiceUnavailableError: The store is unavailable; what was fetched before stays.
            DamagedPublicationError: A file is not what the listing says; likewise.
        """
        listing = self._published()
        if not listing:
            return ""
        with self._alone():
            fetched = self._folder / FETCHED
            if fetched.exists() and fetched.read_bytes() == listing:
                self._prune(json.loads(listing))
            else:
                self._take(json.loads(listing))
                fetched.write_bytes(listing)
                logger.info("%s: generation %s", self.name, generation_of(listing))
        self._show(generation_of(listing))
        return generation_of(listing)

    def generations(self) -> tuple[str, str]:
        """Return the published generation and the one here, each "" if there is none.

        Raises:
            ServiceUnavailableError: The store is unavailable.
        """
        fetched = self._folder / FETCHED
        here = fetched.read_bytes() if fetched.exists() else b""
        return generation_of(self._published()), generation_of(here)

    def follow_on(self) -> None:
        """Fetch now, and again every half minute in a thread.

        Raises:
            ServiceUnavailableError, DamagedPublicationError: As for `fetch`.
        """
        self.fetch()
        Thread(target=self._follow_on, name="mirror", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def _follow_on(self) -> None:
        while not self._closing.wait(FOLLOW_S):
            try:
                self.fetch()
            except (ServiceUnavailableError, DamagedPublicationError, OSError) as error:
                logger.warning("%s could not be followed: %s", self.name, error)

    def _published(self) -> bytes:
        try:
            with answering():
                return bytes(obstore.get(self._backend, LISTING).bytes())
        except FileNotFoundError:
            return b""

    def _show(self, generation: str) -> None:
        if self._shown != generation and self._shown:
            PUBLISHED.record(0, what=self.name, generation=self._shown)
        PUBLISHED.record(1, what=self.name, generation=generation)
        self._shown = generation

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _take(self, listing: dict[str, Any]) -> None:
        for name, entry in listing["files"].items():
            path = self._folder / name
            if is_there(path, entry):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(path.name + ".part")
            with answering(), part.open("wb") as file:
                blob = obstore.get(self._backend, f"blobs/{entry['sha256']}")
                for block in blob.stream(min_chunk_size=BLOCK_BYTES):
                    file.write(block)
            if digest_of(part) != entry["sha256"]:
                part.unlink()
                raise DamagedPublicationError(
                    f"{name} is damaged in the store: delete blobs/{entry['sha256']} there, and "
                    "publish it again"
                )
            part.replace(path)
        for name, target in listing["links"].items():
            fresh = self._folder / f"{name}.part"
            fresh.unlink(missing_ok=True)
            fresh.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, fresh)
            fresh.replace(self._folder / name)

    def _prune(self, listing: dict[str, Any]) -> None:
        """Delete files of the previous publication; its readers have switched since."""
        kept = {*listing["files"], *listing["links"]}
        for place in self._places if self._is_whole else ():
            for path in (self._folder / place.name).rglob("*"):
                is_file = path.is_file() or path.is_symlink()
                if is_file and path.relative_to(self._folder).as_posix() not in kept:
                    path.unlink()


def is_there(path: Path, entry: dict[str, Any]) -> bool:
    """Return whether a file is what the listing says."""
    is_as_long = path.exists() and path.stat().st_size == entry["bytes"]
    return is_as_long and digest_of(path) == entry["sha256"]


def generation_of(listing: bytes) -> str:
    """Name a publication by its contents; "" if there is none."""
    return hashlib.sha256(listing).hexdigest()[:16] if listing else ""
