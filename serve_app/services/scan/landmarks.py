"""A scan's changes to the fingerprint index, which lets the library's tracks be recognised.

Invariant: a track enters the index after it has entered the library. If a crash keeps one out of
the index, the next scan that comes to its file adds it.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING

from pipelines.audio.decode import decode
from serve_app.domain.track_ids import LIBRARY_PREFIX
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.index import FingerprintIndex
from serve_app.providers.fingerprints.manifest import IndexBusyError, is_current
from serve_app.providers.fingerprints.track_keys import key_of_file
from serve_app.services.scan.facts import LIMITS

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint

TOGETHER = 200
"""Tracks of one commit, each of which reads the whole list of keys."""

PATIENCE_S = 10.0
"""Longest wait at the end for another process that has the index, such as a second scan."""


class LandmarkIndex:
    """Adds tracks to an index in batches. Thread-safe; all methods but `lacks` block."""

    def __init__(self, folder: Path) -> None:
        """Read which tracks the index has.

        Raises:
            FingerprintIndexError: It is damaged.
        """
        from pipelines.fingerprint.make import Fingerprinter  # brings torch, which takes seconds

        self._folder = folder
        self._fingerprinter = Fingerprinter()
        self._waiting: dict[str, Fingerprint] = {}
        self._gone = set[str]()
        self._lock = Lock()
        self._known = FingerprintIndex.open(folder).keys() if is_current(folder) else set()

    def lacks(self, track_id: str) -> bool:
        """Whether a track is neither in the index nor about to be."""
        return track_id not in self._known

    def hear(self, path: Path) -> "Fingerprint":
        """Make the landmarks of a file.

        Raises:
            AudioError: It is not audio.
        """
        return self._fingerprinter.make_fingerprints([decode(path, LIMITS)])[0]

    def put(self, track_id: str, landmarks: "Fingerprint") -> None:
        """Add a track, at once or together with others."""
        with self._lock:
            self._waiting[track_id] = landmarks
            self._known.add(track_id)
            is_time = len(self._waiting) % TOGETHER == 0
        if is_time:
            with suppress(IndexBusyError):
                self._commit()

    def take_over(self, track_id: str, location: str) -> None:
        """Let an indexed track replace an earlier entry made for one of its files."""
        key = key_of_file(PurePath(location))
        with self._lock:
            if key in self._known and track_id in self._known:
                self._gone.add(key)

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Remove, with the next `finish`, those of the library's tracks that no longer exist."""
        with self._lock:
            ours = {key for key in self._known if key.startswith(LIBRARY_PREFIX)}
            self._gone |= {key for key in ours if not is_there(key)}
            for key in self._gone:
                self._waiting.pop(key, None)

    def finish(self) -> None:
        """Write the added tracks to the index; running services see it within a second.

        Raises:
            IndexBusyError: Another process has been writing it for `PATIENCE_S`.
            FingerprintIndexError: It is damaged.
        """
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._commit()
            except IndexBusyError:
                if time.monotonic() > until_s:
                    raise
            time.sleep(0.2)

    def _commit(self) -> None:
        with self._lock:
            if self._waiting or self._gone:
                with FingerprintIndexBuilder(self._folder) as builder:
                    for track_id in self._gone:
                        builder.remove(track_id)
                    builder.build(self._waiting.items())
                self._known -= self._gone
                self._gone.clear()
                self._waiting.clear()
