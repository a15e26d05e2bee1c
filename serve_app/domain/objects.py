"""What services expect of an object store, and what can go wrong in it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol


class TooLargeError(Exception):
    """A stream went past the byte limit; nothing of it was kept."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.max_bytes = max_bytes

    def __str__(self) -> str:
        return f"more than {self.max_bytes} bytes"


class ObjectNotFoundError(Exception):
    """No object has that key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What was written: its size, and the hex SHA-256 taken in the same pass."""

    key: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One entry of a listing."""

    key: str
    size_bytes: int
    modified_at: datetime


KeepCheck = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Answers which of the given keys are still referenced."""


class ObjectStorePort(Protocol):
    """Bytes under keys. Keys are ``/``-separated words of ``[A-Za-z0-9._-]``."""

    async def put_stream(
        self, key: str, chunks: AsyncIterator[bytes], *, max_bytes: int | None = None
    ) -> StoredObject:
        """Store a stream; it becomes visible whole or not at all."""
        ...

    def read(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes in chunks."""
        ...

    async def download(self, key: str, path: Path) -> int:
        """Write the object to ``path`` and return its size in bytes."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; a missing one is not an error."""
        ...

    def scan(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Every object below a prefix, which ends at a ``/``."""
        ...

    async def sweep(self, prefix: str, older_than: datetime, keep: KeepCheck) -> int:
        """Delete what nothing references and is older than that; return how many."""
        ...
