"""Objects in a local folder or any S3-compatible store, chosen by one URL.

Invariant: an object is visible whole or not at all. A stream that fails, is cancelled or exceeds
its limit leaves nothing under its key (the store writes elsewhere and publishes at the end).
"""

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryDirectory
from typing import IO
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError as StoreError
from obstore.store import LocalStore, S3Store

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.objects import (
    KeepCheck,
    ObjectInfo,
    ObjectNotFoundError,
    StoredObject,
    TooLargeError,
)

logger = logging.getLogger(__name__)

PART_BYTES = 5 * 1024 * 1024
"""The smallest multipart part that S3 accepts; an upload takes a few times this much memory."""

READ_BYTES = 1024 * 1024
SWEEP_BATCH = 500
KEY_PATTERN = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
STAGED_PATTERN = re.compile(r".+#[0-9]+")
"""How the local store names a file it has not published yet."""


RETRIES = 3
RETRY_LIMIT = timedelta(seconds=10)
"""A request waits no longer for an unavailable store; its client is asked to come back."""


@contextmanager
def answering() -> Iterator[None]:
    """Report a store that is full or unavailable.

    Raises:
        ServiceUnavailableError: The store failed in the block.
    """
    try:
        yield
    except StoreError as error:
        logger.info("object store: %s", str(error).partition("\n")[0])
        raise ServiceUnavailableError(
            "the audio store is full or unavailable; nothing was kept; try again"
        ) from error


def check_key(key: str) -> str:
    """Return ``key`` if it is safe in every store.

    Raises:
        ValueError: It is empty, absolute, or has an empty or dot-only part or other characters.
    """
    if not KEY_PATTERN.fullmatch(key) or any(not part.strip(".") for part in key.split("/")):
        raise ValueError(f"not an object key: {key!r}")
    return key


def open_backend(url: str) -> LocalStore | S3Store:
    """Open the store that a URL names.

    Args:
        url: ``file:///folder`` (created when missing) or ``s3://bucket/prefix``. An S3 URL may
            carry ``?endpoint=https://host:port&region=name`` for stores other than Amazon's;
            credentials come from the ``AWS_*`` environment or the machine's role, never the URL.

    Raises:
        ValueError: The scheme is another, the bucket is missing, or a parameter is unknown.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return LocalStore(unquote(parts.path), mkdir=True)
    if parts.scheme != "s3" or not parts.hostname:
        raise ValueError("the object store must be file:///folder or s3://bucket/prefix")
    options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    endpoint, region = options.pop("endpoint", None), options.pop("region", None)
    if options:
        raise ValueError(f"unknown object store parameters: {', '.join(sorted(options))}")
    config: dict[str, str] = {}
    if endpoint is not None:
        config["aws_endpoint"] = endpoint
    if region is not None:
        config["aws_region"] = region
    return S3Store.from_url(
        f"s3://{parts.hostname}{parts.path}",
        config=config,  # type: ignore[arg-type]  # a TypedDict of literals, filled dynamically
        retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_LIMIT},
        client_options={"allow_http": bool(endpoint and endpoint.startswith("http://"))},
    )


class ObjectStore:
    """Bytes under keys. Keys are ``/``-separated words of ``[A-Za-z0-9._-]``."""

    def __init__(self, url: str) -> None:
        self._backend = open_backend(url)
        self._probe_key = f"probe-{secrets.token_hex(8)}"
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None

    async def put_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, max_bytes: int | None = None
    ) -> StoredObject:
        """Store a stream under ``key``, replacing what was there.

        Args:
            key: See `check_key`.
            chunks: The bytes, read once and never held whole.
            max_bytes: The stream fails as soon as it passes this.

        Raises:
            TooLargeError: The stream is longer than ``max_bytes``; nothing was stored.
            ServiceUnavailableError: The store is full or unavailable; nothing was stored.
        """
        digest = hashlib.sha256()
        size_bytes = 0

        async def counted() -> AsyncIterator[bytes]:
            nonlocal size_bytes
            async for chunk in chunks:
                size_bytes += len(chunk)
                if max_bytes is not None and size_bytes > max_bytes:
                    raise TooLargeError(max_bytes)
                if chunk:
                    # Chunks of a request body are small; a large one would block the event loop.
                    if len(chunk) > PART_BYTES:
                        await asyncio.to_thread(digest.update, chunk)
                    else:
                        digest.update(chunk)
                    yield chunk

        checked = check_key(key)
        with answering():
            await obstore.put_async(
                self._backend, checked, counted(), chunk_size=PART_BYTES, max_concurrency=2
            )
        return StoredObject(key, size_bytes, digest.hexdigest())

    async def put(self, key: str, body: bytes) -> None:
        """Store a few bytes under ``key``, replacing what was there.

        Raises:
            ServiceUnavailableError: The store is full or unavailable.
        """
        checked = check_key(key)
        with answering():
            await obstore.put_async(self._backend, checked, body)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the object's bytes in chunks of about 1 MiB.

        Raises:
            ObjectNotFoundError: No object has that key.
            ServiceUnavailableError: The store is unavailable.
        """
        checked = check_key(key)
        if self._folder is not None and _is_no_file(self._folder / checked):
            raise ObjectNotFoundError(key)
        try:
            with answering():
                found = await obstore.get_async(self._backend, checked)
                chunks = aiter(found.stream(min_chunk_size=READ_BYTES))
        except FileNotFoundError as error:
            raise ObjectNotFoundError(key) from error
        while True:
            with answering():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    async def download(self, key: str, path: Path) -> int:
        """Write the object to ``path`` and return its size in bytes.

        Raises:
            ObjectNotFoundError: No object has that key; ``path`` is not created.
        """
        size_bytes = 0
        file: IO[bytes] | None = None
        try:
            async for chunk in self.read(key):
                if file is None:
                    file = await asyncio.to_thread(path.open, "wb")
                size_bytes += await asyncio.to_thread(file.write, chunk)
            if file is None:
                await asyncio.to_thread(path.write_bytes, b"")
        finally:
            if file is not None:
                await asyncio.to_thread(file.close)
        return size_bytes

    @asynccontextmanager
    async def at_hand(self, key: str) -> AsyncIterator[Path]:
        """Provide the object as a local file while the block runs: its own file, or a copy.

        Raises:
            ObjectNotFoundError: No object has that key.
        """
        if self._folder is not None:
            path = self._folder / check_key(key)
            if not path.is_file():
                raise ObjectNotFoundError(key)
            yield path
            return
        with TemporaryDirectory(prefix="afa-object-") as folder:
            copy = Path(folder) / "object"
            await self.download(key, copy)
            yield copy

    async def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error.

        Raises:
            ServiceUnavailableError: The store is unavailable.
        """
        checked = check_key(key)
        with suppress(FileNotFoundError), answering():
            await obstore.delete_async(self._backend, checked)

    async def ping(self) -> None:
        """Write and remove a small object; each process has its own.

        Raises:
            ServiceUnavailableError: The store is full or unavailable.
        """
        await self.put(self._probe_key, b"afa")
        await self.delete(self._probe_key)

    async def scan(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield every published object below ``prefix``, which must consist of whole key parts.

        Raises:
            ServiceUnavailableError: The store is unavailable.
        """
        clean = check_key(prefix.rstrip("/")) if prefix else None
        batches = aiter(obstore.list(self._backend, clean, chunk_size=SWEEP_BATCH))
        while True:
            with answering():
                batch = await anext(batches, None)
            if batch is None:
                return
            for meta in batch:
                yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"])

    async def sweep(self, prefix: str, older_than: datetime, keep: KeepCheck) -> int:
        """Delete orphans: objects that nothing references, and what crashed uploads left.

        Args:
            prefix: Where to look; "" is everywhere.
            older_than: Younger objects stay, because their record may be about to be written.
            keep: Takes up to 500 keys at a time and returns those that are still referenced.

        Returns:
            How many objects were deleted.
        """
        old: list[str] = []
        n_deleted = 0
        async for info in self.scan(prefix):
            if info.modified_at < older_than:
                old.append(info.key)
            if len(old) >= SWEEP_BATCH:
                n_deleted += await self._delete_unreferenced(old, keep)
                old = []
        n_deleted += await self._delete_unreferenced(old, keep)
        if self._folder is not None:
            folder = self._folder / prefix.rstrip("/")
            await asyncio.to_thread(_remove_staged, folder, older_than.timestamp())
        return n_deleted

    async def _delete_unreferenced(self, keys: list[str], keep: KeepCheck) -> int:
        if not keys:
            return 0
        kept = set(await keep(keys))
        orphans = [key for key in keys if key not in kept]
        for key in orphans:
            await self.delete(key)
        return len(orphans)


def _is_no_file(path: Path) -> bool:
    """Return whether the path is something other than a file: reading a pipe would never end."""
    try:
        return not S_ISREG(path.stat().st_mode)
    except OSError:
        return False  # opening it gives the reason


def _remove_staged(folder: Path, before: float) -> None:
    """Remove unpublished files last written before that time; S3 has lifecycle rules for these."""
    for path in folder.rglob("*"):
        is_staged = STAGED_PATTERN.fullmatch(path.name) is not None and path.is_file()
        if is_staged and path.stat().st_mtime < before:
            path.unlink(missing_ok=True)
