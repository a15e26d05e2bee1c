"""A Parquet file that names audio, a row each: paths, ``s3://`` and web addresses."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from serve_app.domain.errors import UrlFetchError
from serve_app.library.track import Place as Kind
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.url_guard import UrlError, UrlGuard
from serve_app.services.scan.entries import kind_of
from serve_app.services.scan.places import Found, SingleFile, Trouble, fetched, object_at

COLUMNS = ("location", "path", "url", "uri", "file")
"""The first of these that the table has is read."""

MAX_BYTES = 4 << 30
"""Of what a web address gives: four hours of uncompressed stereo are 2.5 GB."""


class Table:
    """What a table names. Relative paths begin at the folder of the command."""

    def __init__(self, path: Path, guard: UrlGuard) -> None:
        """Look at a table.

        Args:
            path: The Parquet file.
            guard: Which web addresses may be fetched.

        Raises:
            ValueError: It is no Parquet file, or no column of it names audio.
            OSError: It cannot be read.
        """
        self._path, self._guard = path, guard
        try:
            names = pq.read_schema(path).names
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is no Parquet file: {error}") from error
        known = [name for name in COLUMNS if name in names]
        if not known:
            raise ValueError(
                f"{path} has no column named {', '.join(COLUMNS)}; it has {', '.join(names)}"
            )
        self._column = known[0]

    def find(self) -> Iterator[Found | Trouble]:
        """See `Place`."""
        with pq.ParquetFile(self._path) as file:
            for batch in file.iter_batches(columns=[self._column]):
                for location in batch.column(0).to_pylist():
                    yield _found(location) if location else Trouble("", "the row names nothing")

    def holds(self, location: str) -> bool:
        """See `Place`."""
        return any(one.location == location for one in self.find())

    @contextmanager
    def at_hand(self, found: Found) -> Iterator[Path]:
        """See `Place`."""
        location = found.location
        if location.startswith("s3://"):
            with fetched(*object_at(location)) as path:
                yield path
        elif kind_of(location) is Kind.URL:
            with TemporaryDirectory(prefix="afa-scan-") as folder:
                path = Path(folder) / (Path(unquote(urlsplit(location).path)).name or "audio")
                try:
                    asyncio.run(AudioUrlFetcher(self._guard).fetch(location, path, MAX_BYTES))
                except UrlError as error:
                    raise UrlFetchError(str(error)) from error
                yield path
        else:
            yield Path(location)


def _found(location: str) -> Found | Trouble:
    if location.startswith("s3://") or kind_of(location) is Kind.URL:
        return Found(location, None, None)
    return next(SingleFile(Path(location)).find())
