"""Carry the journal out of Redis.

Invariant: what leaves the stream is in the archive, once. Redis replicates in order, so a shard
whose stream lacks archived calls has lost them: it is not exported until they are back.
"""

from collections.abc import Sequence

from serve_app.ledger.archive import Archive, Segment, parse_call_id
from serve_app.ledger.journal import PAGE, Call, Journal
from serve_app.store.client import Store

SEGMENTS_KEPT = 100
"""Segments of a shard that are remembered; a replica lags by seconds, not by so many exports."""


class LostEntriesError(RuntimeError):
    """The ledger lacks entries that it had exported: run `afa ledger reconcile`."""


class Exporter:
    """Archives the journal; only one works on a ledger at a time."""

    def __init__(self, store: Store, archive: Archive) -> None:
        self._store = store
        self._archive = archive
        self._journal = Journal(store)
        self._segments: dict[str, list[Segment]] | None = None

    async def export(self) -> int:
        """Archive what is new in every shard, then drop it; tell how many entries.

        Raises:
            LostEntriesError: Some shards lack entries; the others were exported.
            ServiceUnavailableError: The ledger is away.
        """
        n_entries, lacking = 0, []
        if self._segments is None:
            self._segments = await self._archive.segments()
        tags = self._journal.tags()
        for tag, (n_calls, marks) in zip(tags, await states(self._store, tags), strict=True):
            listed = self._segments.setdefault(tag[1:-1], [])
            if listed and listed[-1].last not in marks:
                if await lost_calls(self._journal, self._archive, tag, listed, marks):
                    lacking.append(tag[1:-1])
                    continue
                await self._trim(tag, listed[-1].last)  # archived, and not yet trimmed
            if n_calls:
                n_entries += await self._export_shard(tag, listed)
            del listed[:-SEGMENTS_KEPT]
        if lacking:
            self._segments = None
            raise LostEntriesError(
                f"the ledger has lost exported entries (shards {', '.join(lacking)}); "
                "run `afa ledger reconcile`"
            )
        return n_entries

    async def _export_shard(self, tag: str, listed: list[Segment]) -> int:
        n_entries = 0
        async for calls in self._journal.pages(tag):
            after = listed[-1] if listed else None
            listed.append(await self._archive.put(tag[1:-1], calls, after))
            await self._trim(tag, calls[-1].call_id)
            n_entries += sum(len(call.entries) for call in calls)
        return n_entries

    async def _trim(self, tag: str, until: str) -> None:
        keys = self._store.keys
        names = [keys.shard(tag, name) for name in ("j", "jb", "e")]
        await self._store.run("journal_trim", names, [until, PAGE])


async def states(store: Store, tags: Sequence[str]) -> list[tuple[int, set[str]]]:
    """Give each shard's number of calls in the stream, and the last calls it knows as archived."""
    keys = store.keys
    lengths = await store.batch([("XLEN", keys.shard(tag, "j")) for tag in tags])
    marks = await store.batch(
        [("HMGET", keys.shard(tag, "jb"), "exported", "reconciled") for tag in tags]
    )
    known = [{raw.decode() for raw in pair if raw is not None} for pair in marks]
    return list(zip(lengths, known, strict=True))


def after_marks(listed: list[Segment], marks: set[str]) -> list[Segment]:
    """Give the segments that a shard does not know of."""
    places = [place for place, segment in enumerate(listed) if segment.last in marks]
    if places:
        return listed[places[-1] + 1 :]
    until = max((parse_call_id(mark) for mark in marks), default=(0, 0))
    return [segment for segment in listed if parse_call_id(segment.last) > until]


async def lost_calls(
    journal: Journal, archive: Archive, tag: str, listed: list[Segment], marks: set[str]
) -> list[Call]:
    """Give the calls that are in a shard's archive, and in neither its stream nor its sums."""
    newer = after_marks(listed, marks)
    if not newer:
        return []
    present = {call.call_id async for page in journal.pages(tag) for call in page}
    until = max((parse_call_id(mark) for mark in marks), default=(0, 0))
    calls = [call for segment in newer for call in await archive.read(segment)]
    return [
        call
        for call in calls
        if call.call_id not in present and parse_call_id(call.call_id) > until
    ]
