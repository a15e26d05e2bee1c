"""Carry the journal out of Redis, and back what a failover lost.

Invariant: what leaves the stream is in the archive. Redis replicates in order, so a shard that does
not remember its last export may have lost entries: it is not trimmed until they are back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serve_app.domain.credits import JournalEntry
from serve_app.ledger.archive import Archive, CallId, Segment, parse_call_id
from serve_app.ledger.journal import PAGE, Journal
from serve_app.ledger.ledger import Ledger, Replay
from serve_app.store.client import Store

SEGMENTS_KEPT = 100
"""Segments of a shard that are remembered; a replica lags by seconds, not by so many exports."""

# The new primary makes these itself, when its next operation finds a new month.
MADE_AGAIN = frozenset({"grant", "expire"})


class LostEntriesError(RuntimeError):
    """The ledger lacks entries that it had exported: run `afa ledger reconcile`."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One entry that was missing, and what came of doing it again."""

    entry: JournalEntry
    outcome: Replay


class Exporter:
    """Compares the journal with its archive."""

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
        known = await self._known_segments()
        tags = self._journal.tags()
        for tag, (n_calls, until) in zip(tags, await self._states(tags), strict=True):
            listed = known.setdefault(tag[1:-1], [])
            if listed and parse_call_id(listed[-1].last) > until:
                if await self._lost(tag, listed, until):
                    lacking.append(tag[1:-1])
                    continue
                await self._mark(tag, listed)
            if n_calls:
                n_entries += await self._export_shard(tag, listed)
            del listed[:-SEGMENTS_KEPT]
        if lacking:
            raise LostEntriesError(
                f"the ledger has lost exported entries (shards {', '.join(lacking)}); "
                "run `afa ledger reconcile`"
            )
        return n_entries

    async def reconcile(self, ledger: Ledger, *, is_trial: bool = False) -> list[Replayed]:
        """Do again what was exported and is missing; every step is idempotent on its id.

        Args:
            ledger: Where.
            is_trial: Only tell what is missing; every outcome is then ``missing``.

        Raises:
            ServiceUnavailableError: The ledger is away; call again.
        """
        done: list[Replayed] = []
        known = await self._known_segments()
        tags = self._journal.tags()
        for tag, (_, until) in zip(tags, await self._states(tags), strict=True):
            listed = known.get(tag[1:-1], [])
            for entry in await self._lost(tag, listed, until):
                outcome: Replay = "missing" if is_trial else await ledger.replay(entry)
                done.append(Replayed(entry, outcome))
            if listed and not is_trial:
                await self._mark(tag, listed)
        return done

    async def _known_segments(self) -> dict[str, list[Segment]]:
        if self._segments is None:
            self._segments = await self._archive.segments()
        return self._segments

    async def _states(self, tags: Sequence[str]) -> list[tuple[int, CallId]]:
        """Give each shard's number of calls in the stream, and how far it knows of its archive."""
        keys = self._store.keys
        lengths = await self._store.batch([("XLEN", keys.shard(tag, "j")) for tag in tags])
        marks = await self._store.batch(
            [("HMGET", keys.shard(tag, "jb"), "exported", "reconciled") for tag in tags]
        )
        known = [max(parse_call_id((raw or b"0-0").decode()) for raw in pair) for pair in marks]
        return list(zip(lengths, known, strict=True))

    async def _mark(self, tag: str, listed: list[Segment]) -> None:
        base = self._store.keys.shard(tag, "jb")
        await self._store.command("HSET", base, "reconciled", listed[-1].last)

    async def _lost(self, tag: str, listed: list[Segment], until: CallId) -> list[JournalEntry]:
        newer = [segment for segment in listed if parse_call_id(segment.last) > until]
        if not newer:
            return []
        present = {
            (entry.account, entry.kind, entry.entry_id)
            async for page in self._journal.pages(tag)
            for _, entries in page
            for entry in entries
        }
        lost: list[JournalEntry] = []
        for segment in newer:
            for call_id, entries in await self._archive.read(segment):
                for entry in entries if parse_call_id(call_id) > until else ():
                    name = (entry.account, entry.kind, entry.entry_id)
                    if entry.kind not in MADE_AGAIN and name not in present:
                        present.add(name)
                        lost.append(entry)
        return lost

    async def _export_shard(self, tag: str, listed: list[Segment]) -> int:
        keys, n_entries = self._store.keys, 0
        async for calls in self._journal.pages(tag):
            listed.append(await self._archive.put(tag[1:-1], calls))
            await self._store.run(
                "journal_trim",
                [keys.shard(tag, name) for name in ("j", "jb", "e")],
                [calls[-1][0], PAGE],
            )
            n_entries += sum(len(entries) for _, entries in calls)
        return n_entries
