"""Where a back-fill writes its Parquet files: a folder or an S3 prefix.

Invariant: a file exists whole or not at all, and one run at a time writes. The files are the only
record of what has been done, apart from temporary errors.
"""

import fcntl
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import BaseError as StoreError

from serve_app.backfill.rows import ERRORS, HEARD, OF_THE_FILE, Row
from serve_app.store.objects import open_backend

TRACKS_FOLDER, ERRORS_FOLDER = "tracks", "errors"
SCHEMAS = {TRACKS_FOLDER: HEARD, ERRORS_FOLDER: ERRORS}
LOCK = ".lock"


class DestinationError(Exception):
    """It cannot be written: it is unavailable, full, not a back-fill's, or another run uses it."""


class Destination:
    """The tables ``tracks`` and ``errors``."""

    def __init__(self, place: str) -> None:
        """Open a destination; make the folder if necessary.

        Args:
            place: A folder, or ``s3://bucket/prefix`` as for `open_backend`.

        Raises:
            DestinationError: It is neither, or the folder cannot be made.
        """
        self._place = place
        url = place if "://" in place else Path(place).absolute().as_uri()
        try:
            self._backend = open_backend(url)
        except (ValueError, OSError) as error:
            raise DestinationError(
                f"cannot write tables to {place} ({error}); name a folder or s3://bucket/prefix"
            ) from error
        parts = urlsplit(url)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._passing: set[str] = set()

    def done(self) -> set[str]:
        """Return the ids of the rows that are there, without those of temporary errors.

        Raises:
            DestinationError: It is unavailable, or a file is not one that `put` wrote.
        """
        ids: set[str] = set()
        for path in self._paths(TRACKS_FOLDER):
            ids.update(self._read(path, ["id"])["id"].to_pylist())
        for path in self._paths(ERRORS_FOLDER):
            rows = self._read(path, ["id", "code"]).to_pylist()
            lasting = [row["id"] for row in rows if row["code"] in OF_THE_FILE]
            if len(lasting) < len(rows):
                self._passing.add(path)
            ids.update(lasting)
        return ids

    def drop_passing(self, locations: Collection[str]) -> None:
        """Remove those temporary errors that `done` found and that now have a newer row.

        Args:
            locations: Locations of the newer rows.

        Raises:
            DestinationError: It is unavailable, or a file is not one that `put` wrote.
        """
        for path in sorted(self._passing):
            rows = self._read(path, ERRORS.names).to_pylist()
            left = [
                row
                for row in rows
                if row["code"] in OF_THE_FILE or row["location"] not in locations
            ]
            if len(left) < len(rows):
                self.put(ERRORS_FOLDER, left)
                with self._answering():
                    obstore.delete(self._backend, path)
        self._passing.clear()

    def _paths(self, folder: str) -> list[str]:
        with self._answering():
            pages = list(obstore.list(self._backend, folder))
        paths = [entry["path"] for page in pages for entry in page]
        return [path for path in paths if path.endswith(".parquet")]

    def _read(self, path: str, columns: list[str]) -> pa.Table:
        with self._answering():
            content = obstore.get(self._backend, path).bytes()
        try:
            return pq.read_table(pa.BufferReader(content), columns=columns).select(columns)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise DestinationError(
                f"{path} at the destination is not a table of a back-fill ({_first_line(error)}); "
                "remove it and run again: what it may have held is in the library"
            ) from error

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (StoreError, OSError) as error:
            raise DestinationError(
                f"{self._place} cannot be read or written ({_first_line(error)}); see to it and "
                "run the same command again: what was analysed is in the library"
            ) from error

    def put(self, folder: str, rows: Sequence[Row]) -> None:
        """Write rows as one file, which is named after them.

        Raises:
            DestinationError: It cannot be written.
        """
        if not rows:
            return
        digest = hashlib.sha256("".join(sorted(row["id"] for row in rows)).encode()).hexdigest()
        content = BytesIO()
        table = pa.Table.from_pylist(list(rows), schema=SCHEMAS[folder])
        pq.write_table(table, content, compression="zstd")
        path = f"{folder}/{digest[:32]}.parquet"
        with self._answering():
            obstore.put(self._backend, path, content.getvalue())
        self._passing.discard(path)  # what it held was from an earlier run

    @contextmanager
    def only_run(self) -> Iterator[None]:
        """Ensure that no other run writes here while the block runs.

        Raises:
            DestinationError: Another run does, or the folder cannot be written.
        """
        if self._folder is None:
            # S3 has no lock that ends with its holder; see the help of the command.
            yield
            return
        with self._answering():
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise DestinationError(
                f"another back-fill writes to {self._folder}; wait for its end"
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)


def _first_line(error: Exception) -> str:
    """Return the first line of an error; the rest is for debugging."""
    return str(error).partition("\n")[0]
