"""Export the journal from Redis.

Invariant: what leaves the stream is in the archive once, even when two exporters run at the same
time: the shard fixes what the next segment holds until that is trimmed. Redis replicates in order,
so a shard whose stream lacks archived calls has lost them: it is not exported until they are back.
"""

from collections.abc import Sequence

from serve_app.ledger.archive.segments import Archive, CallId, Segment, cut_off, parse_call_id
from serve_app.ledger.journal import PAGE, Call, Journal, pairs_of, parse_call
from serve_app.store.client import Store

SEGMENTS_KEPT = 100
"""Segments remembered per shard; a replica lags by seconds, never by this many exports."""

PROBLEMS_TOLD = 5
LOSS_KNOWN_S = 600
"""How long a shard is marked as lacking entries after an exporter last found that it does."""

Marks = tuple[str, str]
"""The last calls that a shard knows as exported and as reconciled; "" for none."""


class LostEntriesError(RuntimeError):
    """The ledger lacks entries that it had exported: run `afa ledger reconcile`."""


class OtherArchiveError(RuntimeError):
    """The archive lacks what the ledger had exported: it is a different one, or incomplete."""


class Exporter:
    """Archives the journal. Two at once do no harm, since both write the same segments."""

    def __init__(self, store: Store, archive: Archive) -> None:
        self._store = store
        self._archive = archive
        self._journal = Journal(store)
        self._segments: dict[str, list[Segment]] | None = None
        self._head: dict[str, int] = {}
        self._marks: dict[str, Marks] = {}
        self._compared: dict[str, str] = {}

    async def export(self) -> int:
        """Move what is new in every shard to the archive; return the number of entries.

        Raises:
            LostEntriesError: Some shards lack entries; the others were exported.
            OtherArchiveError: The archive lacks entries; nothing was exported.
            ServiceUnavailableError: The ledger is unavailable.
        """
        tags = self._journal.tags()
        histories = await self._histories(tags)
        found = dict(zip(tags, await states(self._store, tags), strict=True))
        marks = {tag: marks for tag, (_, marks) in found.items()}
        if self._segments is None or marks != self._marks:
            # Another exporter ran. The marks were read first, so none is newer than the list.
            head, segments = await self._archive.head(), await self._archive.segments()
            _refuse_other(lacking(head, segments, marks))
            self._head, self._segments, self._marks = head, segments, marks
        lacks = await self._compare(marks, self._segments)
        await self._note_compared({tag: one for tag, one in histories.items() if tag not in lacks})
        n_entries = 0
        for tag, (n_calls, _) in found.items():
            listed = self._segments[tag[1:-1]]
            if n_calls and tag not in lacks:
                n_entries += await self._export_shard(tag, listed)
            del listed[:-SEGMENTS_KEPT]
        await self._note_head(
            {shard: one[-1].number for shard, one in self._segments.items() if one}
        )
        if lacks:
            self._segments = None
            shards = ", ".join(sorted(tag[1:-1] for tag in lacks))
            raise LostEntriesError(
                f"the ledger has lost exported entries (shards {shards}); "
                "run `afa ledger reconcile`"
            )
        return n_entries

    async def _compare(
        self, marks: dict[str, Marks], segments: dict[str, list[Segment]]
    ) -> set[str]:
        """Return the shards that lack archived calls; trim the archived calls of the others."""
        lacks = set()
        for tag, known in marks.items():
            listed = segments.setdefault(tag[1:-1], [])
            if listed and listed[-1].last not in known:
                if await lost_calls(self._store, self._archive, tag, listed, known):
                    lacks.add(tag)
                    await self._note_lost(tag, known)
                else:
                    await self._trim(tag, listed[-1].last)
        return lacks

    async def _note_lost(self, tag: str, known: Marks) -> None:
        lost = self._store.keys.shard(tag, "lost")
        await self._store.command("SET", lost, 1, "EX", LOSS_KNOWN_S)
        ((_, now_known),) = await states(self._store, [tag])
        if now_known != known:  # reconciled meanwhile; otherwise reconciling deletes it later
            await self._store.command("DEL", lost)

    async def _histories(self, tags: Sequence[str]) -> dict[str, str]:
        """Return the replication id of each shard's server; without a cluster all share one."""
        script, keys = self._store.script("history").text, self._store.keys
        asked = tags if self._store.is_cluster else tags[:1]
        found = await self._store.batch(
            [("EVAL", script, 1, keys.shard(tag, "j")) for tag in asked]
        )
        of_all = [one.decode() for one in found] * (len(tags) // len(asked))
        return dict(zip(tags, of_all, strict=True))

    async def _note_compared(self, histories: dict[str, str]) -> None:
        """Note that these shards lack no archived calls, for when an unknown job is polled."""
        new = {tag: one for tag, one in histories.items() if self._compared.get(tag) != one}
        script, keys = self._store.script("history_compared").text, self._store.keys
        await self._store.batch(
            [("EVAL", script, 1, keys.shard(tag, "compared"), one) for tag, one in new.items()]
        )
        self._compared.update(new)

    async def _note_head(self, head: dict[str, int]) -> None:
        if head != self._head:
            await self._archive.put_head(head)
            self._head = head

    async def _export_shard(self, tag: str, listed: list[Segment]) -> int:
        n_entries = 0
        while calls := await self._claim(tag):
            after = listed[-1] if listed else None
            listed.append(await self._archive.put(tag[1:-1], calls, after))
            await self._trim(tag, calls[-1].call_id)
            n_entries += sum(len(call.entries) for call in calls)
        return n_entries

    async def _claim(self, tag: str) -> list[Call]:
        """Return the calls of the next segment; none if another exporter has gone on."""
        names = [self._store.keys.shard(tag, name) for name in ("j", "jb")]
        found = await self._store.run("journal_claim", names, [*self._marks[tag], PAGE])
        if found == b"STALE":
            return []
        return [parse_call(call_id.decode(), pairs_of(fields)) for call_id, fields in found]

    async def _trim(self, tag: str, until: str) -> None:
        await self._journal.trim(tag, until)
        self._marks[tag] = (until, self._marks[tag][1])


def lacking(
    head: dict[str, int], segments: dict[str, list[Segment]], marks: dict[str, Marks]
) -> list[str]:
    """Say which exported calls an archive lacks; read the marks before its list of segments."""
    return cut_off(head, segments) + [
        f"{tag[1:-1]}: the segment with call {mark} is missing"
        for tag, known in marks.items()
        for mark in known
        if mark and not any(one.has(mark) for one in reversed(segments.get(tag[1:-1], [])))
    ]


def _refuse_other(problems: list[str]) -> None:
    if problems:
        raise OtherArchiveError(
            "the ledger has exported before what this archive lacks: set AFA_JOURNAL_STORE to the "
            f"archive that has it, or copy that one here ({'; '.join(problems[:PROBLEMS_TOLD])}); "
            "if it is lost for good, run `afa ledger begin-archive` on an empty place"
        )


async def states(store: Store, tags: Sequence[str]) -> list[tuple[int, Marks]]:
    """Return the number of calls in each shard's stream, and the last calls known as archived."""
    keys = store.keys
    streams, sums = ([keys.shard(tag, name) for tag in tags] for name in ("j", "jb"))
    lengths = await store.ask(streams, "XLEN")
    found = await store.ask(sums, "HMGET", "exported", "reconciled")
    none = (None, None)
    marks = [
        ((one or b"").decode(), (other or b"").decode())
        for one, other in (found.get(key, none) for key in sums)
    ]
    return list(zip((lengths.get(key, 0) for key in streams), marks, strict=True))


def after_marks(listed: list[Segment], marks: Marks) -> list[Segment]:
    """Return the segments that a shard does not know about."""
    places = [place for place, segment in enumerate(listed) if segment.last in marks]
    if places:
        return listed[places[-1] + 1 :]
    until = newest(marks)
    return [segment for segment in listed if parse_call_id(segment.last) > until]


def until_marks(listed: list[Segment], marks: Marks) -> list[Segment]:
    """Return the segments up to the last one with a call that the shard knows as archived."""
    places = [place for place, one in enumerate(listed) if any(m and one.has(m) for m in marks)]
    return listed[: places[-1] + 1] if places else []


def newest(marks: Marks) -> CallId:
    """Return the newest call that a shard knows as archived."""
    return max(parse_call_id(mark) if mark else (0, 0) for mark in marks)


async def lost_calls(
    store: Store, archive: Archive, tag: str, listed: list[Segment], marks: Marks
) -> list[Call]:
    """Return the calls of a shard that are in the archive but in neither its stream nor its sums.

    Args:
        store: The ledger.
        archive: The archive that has the segments.
        tag: Hash tag of the shard.
        listed: The shard's segments.
        marks: The last calls that it knew as archived at some earlier time.
    """
    newer = after_marks(listed, marks)
    if not newer:
        return []
    present = {call.call_id async for page in Journal(store).pages(tag) for call in page}
    # Read last: calls that an exporter drops meanwhile are marked in the same step.
    ((_, marks),) = await states(store, [tag])
    until = newest(marks)
    calls = [call for segment in newer for call in await archive.read(segment)]
    return [
        call
        for call in calls
        if call.call_id not in present and parse_call_id(call.call_id) > until
    ]
