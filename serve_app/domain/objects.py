"""What services expect of an object store, and what can go wrong in it."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime


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
"""Returns those of the given keys that are still referenced."""
