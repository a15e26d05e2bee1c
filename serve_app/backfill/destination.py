"""Where a back-fill writes: a folder or an S3 prefix, with a Parquet file for every so many rows.

Invariant: a file is there whole or not at all, and one run at a time writes. What is there is the
only memory of what has been done.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from serve_app.backfill.rows import ERRORS, HEARD, Row
from serve_app.store.objects import open_backend

TRACKS_FOLDER, ERRORS_FOLDER = "tracks", "errors"
SCHEMAS = {TRACKS_FOLDER: HEARD, ERRORS_FOLDER: ERRORS}
LOCK = ".lock"


class DestinationError(Exception):
    """What is at the destination is not what a back-fill writes, or another run writes there."""


class Destination:
    """The tables ``tracks`` and ``errors``."""

    def __init__(self, place: str) -> None:
        """Open a destination; a folder is made.

        Args:
            place: A folder, or ``s3://bucket/prefix`` as `open_backend` takes it.

        Raises:
            ValueError: It is no such place.
        """
        url = place if "://" in place else Path(place).absolute().as_uri()
        self._backend = open_backend(url)
        parts = urlsplit(url)
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None

    def done(self) -> set[str]:
        """Give the ids of all rows that are there.

        Raises:
            DestinationError: A file is not one that `put` wrote.
        """
        ids: set[str] = set()
        for folder in SCHEMAS:
            for page in obstore.list(self._backend, folder):
                for entry in page:
                    ids.update(self._ids(entry["path"]))
        return ids

    def _ids(self, path: str) -> Iterator[str]:
        if not path.endswith(".parquet"):
            return
        content = obstore.get(self._backend, path).bytes()
        try:
            table = pq.read_table(pa.BufferReader(content), columns=["id"])
        except (pa.ArrowInvalid, KeyError) as error:
            raise DestinationError(
                f"{path} at the destination is no table of a back-fill ({error}); remove it and "
                "run again: what it may have held is in the library"
            ) from error
        yield from table["id"].to_pylist()

    def put(self, folder: str, rows: Sequence[Row]) -> None:
        """Write rows as one file, which is named by them.

        Raises:
            OSError: It cannot be written.
        """
        if not rows:
            return
        digest = hashlib.sha256("".join(sorted(row["id"] for row in rows)).encode()).hexdigest()
        content = BytesIO()
        table = pa.Table.from_pylist(list(rows), schema=SCHEMAS[folder])
        pq.write_table(table, content, compression="zstd")
        obstore.put(self._backend, f"{folder}/{digest[:32]}.parquet", content.getvalue())

    @contextmanager
    def only_run(self) -> Iterator[None]:
        """See that no other run writes here, as long as the block runs.

        Raises:
            DestinationError: Another run does.
        """
        if self._folder is None:
            # S3 knows no lock that ends with its holder; see the help of the command.
            yield
            return
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
