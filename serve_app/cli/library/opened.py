"""Opens the library of this installation for commands that use it without the service."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from configs.settings import Settings
from serve_app.cli.environment import fail, told
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.library import Library
from serve_app.library.place import LibraryPlace
from serve_app.local.locks import take_lock

logger = logging.getLogger(__name__)

MAINTAIN_S = 60.0


def opened(settings: Settings, files: LocalFiles) -> Library:
    """Open the library as it is now, or say why that fails and exit."""
    with told(ValueError, OSError, ServiceUnavailableError):
        library = Library(files.library_url(settings), files.library_view_dir)
        library.follow()
    return library


def opened_if_there(settings: Settings, files: LocalFiles) -> Library | None:
    """Open the library for a command that only reads; a local one is not created."""
    folder = _folder(settings, files)
    return None if folder is not None and not folder.is_dir() else opened(settings, files)


def existing(settings: Settings, files: LocalFiles) -> Library:
    """Open the library for a command that needs one, or say that there is none."""
    library = opened_if_there(settings, files)
    if library is None:
        folder = _folder(settings, files)
        fail(f"there is no library in {folder}; `afa scan FOLDER` makes one of your music")
    return library


class ScanningError(RuntimeError):
    """Another scan of this library is running."""


@contextmanager
def only_scan(files: LocalFiles) -> Iterator[None]:
    """Ensure that no other scan runs here during the block: it would analyse the same files.

    Raises:
        ScanningError: Another scan runs.
        OSError: The data folder cannot be written.
    """
    with files.scan_lock_path.open("a+", encoding="utf-8") as file:
        file.seek(0)
        if not take_lock(file):  # released when its process ends, however that happens
            raise ScanningError(
                f"another scan of this library is at work (process {file.read() or 'unknown'}); "
                "wait for its end, or end it: what it has done is kept"
            )
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def maintained(library: Library) -> Iterator[None]:
    """Keep a library compact while the block runs, as a service does with its own.

    Nothing else may use the object meanwhile.
    """
    ended = Event()

    def maintain() -> None:
        while True:
            try:
                with library.turn():  # writes of a scan at the same time would undo it
                    library.maintain()
            except Exception as error:  # noqa: BLE001  the next round tries again
                logger.warning("library: %s: %s", type(error).__name__, error)
            if ended.wait(MAINTAIN_S):
                return

    keeping = Thread(target=maintain, name="maintain")
    keeping.start()
    try:
        yield
    finally:
        ended.set()
        keeping.join()


def _folder(settings: Settings, files: LocalFiles) -> Path | None:
    with told(ValueError):
        return LibraryPlace.parse(files.library_url(settings)).folder
