"""The exported journal: a chain of segments for each shard, in a folder or an S3-compatible store.

Invariant: a segment that was put is on the disk (or in the bucket) when the call returns; it names
the hash of the one before, and no call is in two. ``docs/operating/ledger-archive.md`` has the
schema.
"""

import asyncio
import hashlib
import json
import os
import struct
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from serve_app.domain.credits import JournalEntry
from serve_app.domain.objects import ObjectNotFoundError
from serve_app.ledger.journal import Call
from serve_app.ledger.packed import (
    ACCOUNT,
    HoldState,
    pack_hold,
    unpack_account,
    unpack_whole_hold,
)
from serve_app.store.objects import ObjectStore

FORMAT = 2
HEAD = "head.json"
CallId = tuple[int, int]


def parse_call_id(text: str) -> CallId:
    """Read a stream id, ``<ms>-<number>``."""
    ms, _, number = text.partition("-")
    return int(ms), int(number)


class SegmentError(ValueError):
    """A file of an archive is not a segment, or is damaged; the message names it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One shard's calls from ``first`` to ``last``; ``number`` is its place, 0 in format 1."""

    shard: str
    number: int
    first: str
    last: str

    @property
    def key(self) -> str:
        """The key that the segment is stored under."""
        place = f"{self.number:08d}_" if self.number else ""
        return f"{self.shard}/{place}{self.first}_{self.last}.jsonl"

    def has(self, call_id: str) -> bool:
        """Return whether a call is within the segment's range."""
        return parse_call_id(self.first) <= parse_call_id(call_id) <= parse_call_id(self.last)

    @classmethod
    def of_key(cls, key: str) -> "Segment":
        """Read the name of a segment.

        Raises:
            SegmentError: It is not the name of a segment.
        """
        shard, _, name = key.rpartition("/")
        try:
            *number, first, last = name.removesuffix(".jsonl").split("_")
            for call_id in (first, last):
                parse_call_id(call_id)
            return cls(shard.rpartition("/")[2], int(number[0]) if number else 0, first, last)
        except ValueError as error:
            raise SegmentError(
                f"{key}: segments are not named like this; move it elsewhere"
            ) from error


@dataclass(frozen=True, slots=True)
class Contents:
    """What a segment holds; format 1 had no header."""

    header: dict[str, Any]
    calls: list[Call]
    digest: str


class Archive:
    """Keeps segments; each line of a segment after its header is a script call."""

    def __init__(self, url: str) -> None:
        self._objects = ObjectStore(url)
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        self._digests: dict[str, str] = {}

    async def put(self, shard: str, calls: list[Call], after: Segment | None) -> Segment:
        """Store the calls of a shard that follow a segment; repeating it changes nothing."""
        number = after.number + 1 if after is not None else 1
        segment = Segment(shard, number, calls[0].call_id, calls[-1].call_id)
        header = {
            "format": FORMAT,
            "shard": shard,
            "segment": number,
            "first": segment.first,
            "last": segment.last,
            "previous": await self._digest(after) if after is not None else "",
        }
        rows = [header, *map(row_of, calls)]
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()

        async def body() -> AsyncIterator[bytes]:
            yield text

        await self._objects.put_stream(segment.key, body())
        if self._folder is not None:
            await asyncio.to_thread(force_to_disk, self._folder / segment.key)
        if after is not None:
            self._digests.pop(after.key, None)
        self._digests[segment.key] = hashlib.sha256(text).hexdigest()
        return segment

    async def _digest(self, segment: Segment) -> str:
        known = self._digests.get(segment.key)
        return known if known is not None else (await self.open(segment)).digest

    async def read(self, segment: Segment) -> list[Call]:
        """Return the calls of a segment."""
        return (await self.open(segment)).calls

    async def open(self, segment: Segment) -> Contents:
        """Read a whole segment.

        Raises:
            SegmentError: It is damaged.
        """
        text = b"".join([chunk async for chunk in self._objects.read(segment.key)])
        try:
            rows = [json.loads(line) for line in text.splitlines()]
            header = dict(rows.pop(0)) if segment.number else {}
            is_ours = header.get("format", FORMAT) == FORMAT
            calls = [call_of(row) for row in rows] if is_ours else []
        except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            raise SegmentError(f"{segment.key}: it was damaged or cut off") from error
        return Contents(header, calls, hashlib.sha256(text).hexdigest())

    async def keep_aside(self, shard: str, calls: list[Call]) -> None:
        """Store calls that are in no segment, for people to read."""
        text = "".join(f"{json.dumps(row_of(call), ensure_ascii=False)}\n" for call in calls)
        key = f"{shard}/before_{calls[0].call_id}_{calls[-1].call_id}.json"
        await self._objects.put(key, text.encode())
        if self._folder is not None:
            await asyncio.to_thread(force_to_disk, self._folder / key)

    async def drop(self, segment: Segment) -> None:
        """Delete a segment."""
        await self._objects.delete(segment.key)

    async def put_head(self, last: dict[str, int]) -> None:
        """Note the number of each shard's last segment."""
        text = json.dumps({"format": FORMAT, "last": dict(sorted(last.items()))})
        await self._objects.put(HEAD, text.encode())
        if self._folder is not None:
            await asyncio.to_thread(force_to_disk, self._folder / HEAD)

    async def head(self) -> dict[str, int]:
        """Return what `put_head` noted; empty if there is no readable note.

        Read it before `segments`: it may lag behind them, and is ahead only if some are gone.
        """
        try:
            text = b"".join([chunk async for chunk in self._objects.read(HEAD)])
            return {str(shard): int(last) for shard, last in json.loads(text)["last"].items()}
        except (ObjectNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    async def segments(self) -> dict[str, list[Segment]]:
        """List all segments by shard, in the order of their chain."""
        found: dict[str, list[Segment]] = {}
        async for info in self._objects.scan():
            if not info.key.endswith(".jsonl"):
                continue
            segment = Segment.of_key(info.key)
            found.setdefault(segment.shard, []).append(segment)
        for listed in found.values():
            listed.sort(key=lambda segment: (segment.number, parse_call_id(segment.last)))
        return found


def cut_off(head: dict[str, int], segments: dict[str, list[Segment]]) -> list[str]:
    """Say which shards lack their newest segments, or all, compared with the head."""
    ends = {shard: listed[-1].number for shard, listed in segments.items()}
    remedy = (
        "bring them back; if they are gone for good, what was in them is lost: delete head.json to "
        "go by the rest"
    )
    return [
        f"{shard}: its segments after {ends[shard]}, up to {last}, are missing: {remedy}"
        if shard in ends
        else f"{shard}: all of its segments are missing: {remedy}"
        for shard, last in head.items()
        if ends.get(shard, -1) < last
    ]


def row_of(call: Call) -> dict[str, Any]:
    """Write a call as a line of a segment."""
    row: dict[str, Any] = {
        "call": call.call_id,
        "entries": [asdict(entry) for entry in call.entries],
        "accounts": {name: unpack_account(raw) for name, raw in call.accounts.items()},
        "holds": {name: unpack_whole_hold(raw) for name, raw in call.holds.items()},
        "deadlines": call.deadlines,
        "topups": call.topups,
        "payments": call.payments,
        "opening": call.is_opening,
    }
    return {name: value for name, value in row.items() if value}


def call_of(row: Any) -> Call:
    """Read a line of a segment; format 1 had a list of id and entries, and no images."""
    if isinstance(row, list):
        return Call(row[0], [JournalEntry(**entry) for entry in row[1]])
    return Call(
        row["call"],
        [JournalEntry(**entry) for entry in row.get("entries", [])],
        {name: ACCOUNT.pack(*state) for name, state in row.get("accounts", {}).items()},
        {name: pack_hold(HoldState(*state)) for name, state in row.get("holds", {}).items()},
        row.get("deadlines", {}),
        row.get("topups", {}),
        {name: (str(seen), int(at)) for name, (seen, at) in row.get("payments", {}).items()},
        row.get("opening", False),
    )


def force_to_disk(path: Path) -> None:
    """Wait until a file and its directory entries are on the disk."""
    for place in (path, path.parent, path.parent.parent):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
