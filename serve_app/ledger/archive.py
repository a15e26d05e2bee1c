"""The exported journal: segments in a folder or an S3-compatible store.

Invariant: a segment that was put is on the disk (or in the bucket) when the call returns, and its
name tells the shard and the first and last script call it holds, so none replaces another.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from serve_app.domain.credits import JournalEntry
from serve_app.store.objects import ObjectStore

CallId = tuple[int, int]
Call = tuple[str, list[JournalEntry]]


def parse_call_id(text: str) -> CallId:
    """Read a stream id, ``<ms>-<number>``."""
    ms, _, number = text.partition("-")
    return int(ms), int(number)


@dataclass(frozen=True, slots=True)
class Segment:
    """The calls of one shard from ``first`` to ``last``."""

    shard: str
    first: str
    last: str

    @property
    def key(self) -> str:
        """Where it lies."""
        return f"{self.shard}/{self.first}_{self.last}.jsonl"

    @classmethod
    def of_key(cls, key: str) -> "Segment":
        """Read the name of a segment."""
        shard, _, name = key.rpartition("/")
        first, _, last = name.removesuffix(".jsonl").partition("_")
        return cls(shard.rpartition("/")[2], first, last)


class Archive:
    """Keeps segments; each line of one is a script call: its id and its entries."""

    def __init__(self, url: str) -> None:
        self._objects = ObjectStore(url)
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None

    async def put(self, shard: str, calls: list[Call]) -> Segment:
        """Store the calls of a shard; the same calls again change nothing."""
        segment = Segment(shard, calls[0][0], calls[-1][0])
        lines = (
            json.dumps([call_id, [asdict(entry) for entry in entries]], ensure_ascii=False)
            for call_id, entries in calls
        )

        async def body() -> AsyncIterator[bytes]:
            yield ("\n".join(lines) + "\n").encode()

        await self._objects.put_stream(segment.key, body())
        if self._folder is not None:
            await asyncio.to_thread(force_to_disk, self._folder / segment.key)
        return segment

    async def read(self, segment: Segment) -> list[Call]:
        """Give the calls of a segment."""
        text = b"".join([chunk async for chunk in self._objects.read(segment.key)])
        calls = (json.loads(line) for line in text.splitlines())
        return [(call_id, [JournalEntry(**row) for row in rows]) for call_id, rows in calls]

    async def segments(self) -> dict[str, list[Segment]]:
        """List all segments by shard, oldest first."""
        found: dict[str, list[Segment]] = {}
        async for info in self._objects.scan():
            segment = Segment.of_key(info.key)
            found.setdefault(segment.shard, []).append(segment)
        for listed in found.values():
            listed.sort(key=lambda segment: parse_call_id(segment.last))
        return found


def force_to_disk(path: Path) -> None:
    """Return when a file and its names are on the disk."""
    for place in (path, path.parent, path.parent.parent):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
