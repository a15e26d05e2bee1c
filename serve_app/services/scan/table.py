"""A Parquet file that lists audio, one per row: paths, ``s3://`` and web addresses."""

import asyncio
import re
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
from serve_app.services.scan.places import FULL, Found, SingleFile, Trouble, fetched, object_at

COLUMNS = ("location", "path", "url", "uri", "file")
"""The first of these columns that holds text is read."""

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)

MAX_BYTES = 4 << 30
"""Most bytes from a web address: four hours of uncompressed stereo are 2.5 GB."""


class Table:
    """The files listed in a table. Relative paths start at the command's working folder."""

    def __init__(self, path: Path, guard: UrlGuard) -> None:
        """Check a table.

        Args:
            path: The Parquet file.
            guard: Which web addresses may be fetched.

        Raises:
            ValueError: It is not a Parquet file, or no column of it holds locations as text.
            OSError: It cannot be read.
        """
        self._path, self._guard = path, guard
        self.root = str(path)
        try:
            schema = pq.read_schema(path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is no Parquet file: {error}") from error
        kinds = dict(zip(schema.names, schema.types, strict=True))
        texts = [name for name in COLUMNS if name in kinds and _is_text(kinds[name])]
        if not texts:
            has = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
            raise ValueError(
                f"{path} has no column of text named {', '.join(COLUMNS)}; it has {has}"
            )
        self._column = texts[0]

    def find(self) -> Iterator[Found | Trouble]:
        """See `Place`."""
        with pq.ParquetFile(self._path) as file:
            batches = file.iter_batches(columns=[self._column])
            rows = (location for batch in batches for location in batch.column(0).to_pylist())
            for number, location in enumerate(rows, 1):
                if location:
                    yield _found(location)
                else:
                    yield Trouble(f"{self._path}, row {number}", "the row names nothing")

    def holds(self, location: str) -> bool:
        """See `Place`."""
        return any(one.location == location for one in self.find())

    @contextmanager
    def at_hand(self, found: Found) -> Iterator[Path]:
        """See `Place`.

        Raises:
            UrlFetchError: A web address does not return audio, or must not be fetched.
        """
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
                    raise _fault(error) from None
                yield path
        else:
            yield Path(location)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        (pa.types.is_string(kind), pa.types.is_large_string(kind), pa.types.is_string_view(kind))
    )


def _found(location: str) -> Found | Trouble:
    if "\0" in location:
        return Trouble(
            location.replace("\0", "\\0"), "a path cannot hold a zero byte; fix the table"
        )
    address = SCHEME.fullmatch(location)
    if address is None:
        return next(SingleFile(Path(location)).find())
    scheme, rest = address[1].lower(), address[2]
    if scheme == "s3" and not all(rest.partition("/")):
        return Trouble(location, "names no object; write s3://bucket/key")
    if scheme not in ("s3", "http", "https"):
        return Trouble(location, f"{scheme}:// is not read; name a path, s3:// or a web address")
    return Found(f"{scheme}://{rest}", None, None)


def _fault(error: UrlError) -> Exception:
    """Return one error for a wrong address, another for one that cannot be reached now."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in FULL:
        return cause
    is_wrong = cause is None or isinstance(cause, ValueError)
    return UrlFetchError(str(error)) if is_wrong else OSError(str(error))
