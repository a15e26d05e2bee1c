"""The journal: reading, auditing and exporting it.

Invariant: nothing leaves the stream before it was exported and folded into the base sums, so an
audit always covers an account from its first entry.
"""

import json
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from serve_app.domain.credits import AuditReport, JournalEntry, Mismatch
from serve_app.store.client import Store
from serve_app.store.keys import SEPARATOR, split_member
from serve_app.store.ledger import unpack_account, unpack_hold

PAGE = 100
DELTAS = struct.Struct("<4d")
ENDINGS = frozenset({"commit", "void", "reap"})

Sink = Callable[[str, bytes], Awaitable[None]]


@dataclass(slots=True)
class Sums:
    """What the journal says about one account."""

    number: int = 0
    grant: int = 0
    packs: int = 0
    debt: int = 0
    gaps: list[str] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    twice: list[str] = field(default_factory=list)

    def add(self, entry: JournalEntry) -> None:
        """Fold one entry in."""
        if entry.number != self.number + 1:
            self.gaps.append(f"{self.number} is followed by {entry.number}")
        self.number = entry.number
        self.grant += entry.grant
        self.packs += entry.packs
        self.debt += entry.debt
        seen = {"reserve": self.reserved}.get(entry.kind)
        if entry.kind in ENDINGS:
            seen = self.ended
        if seen is not None:
            if entry.entry_id in seen:
                self.twice.append(f"{entry.kind} {entry.entry_id}")
            seen.add(entry.entry_id)


def parse_entries(fields: dict[bytes, bytes]) -> list[JournalEntry]:
    """Read one stream entry: all that one script call wrote; a note belongs to the last."""
    words = fields[b"e"].decode().split(" ")
    entries = []
    deltas = DELTAS.iter_unpack(fields[b"v"])
    for kind, member, numbers in zip(words[::2], words[1::2], deltas, strict=True):
        account, entry_id = member.split(SEPARATOR)
        number, g, p, d = map(int, numbers)
        entries.append(JournalEntry(account, number, kind, entry_id, g, p, d))
    if b"w" in fields:
        entries[-1] = replace(entries[-1], note=fields[b"w"].decode())
    return entries


class Journal:
    """Reads the journal of all shards."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _tags(self, account: str | None) -> list[str]:
        keys = self._store.keys
        if account is not None:
            return [keys.tag(account)]
        return [keys.shard_tag(shard) for shard in range(keys.shards)]

    async def _pages(
        self, tag: str, after: str = "-"
    ) -> AsyncIterator[list[tuple[str, JournalEntry]]]:
        stream = self._store.keys.shard(tag, "j")
        while True:
            page = await self._store.command("XRANGE", stream, after, "+", "COUNT", PAGE)
            if not page:
                return
            yield [
                (entry_id.decode(), entry)
                for entry_id, fields in page
                for entry in parse_entries(fields)
            ]
            after = f"({page[-1][0].decode()}"

    async def entries(self, account: str) -> list[JournalEntry]:
        """Give the entries of an account that are still in the stream, oldest first."""
        found: list[JournalEntry] = []
        async for page in self._pages(self._store.keys.tag(account)):
            found.extend(entry for _, entry in page if entry.account == account)
        return found

    async def audit(self, account: str | None = None) -> AuditReport:
        """Check every invariant of one account, or of all.

        Not one snapshot: run it on a quiet account, or take a finding that goes away at the second
        look for what it is.

        Raises:
            ServiceUnavailableError: The ledger is away.
        """
        mismatches: list[Mismatch] = []
        accounts = entries = holds = 0
        for tag in self._tags(account):
            sums = await self._sums(tag)
            open_holds = await self._open_holds(tag)
            for name, found in sums.items():
                if account in (None, name):
                    accounts += 1
                    entries += found.number
                    holds += len(open_holds.get(name, ()))
                    mismatches += await self._check(name, found, open_holds.get(name, set()))
        return AuditReport(accounts, entries, holds, tuple(mismatches))

    async def _sums(self, tag: str) -> dict[str, Sums]:
        sums: dict[str, Sums] = defaultdict(Sums)
        base = await self._store.command("HGETALL", self._store.keys.shard(tag, "jb"))
        names = {"n": "number", "g": "grant", "p": "packs", "d": "debt"}
        for raw, value in base.items():
            name, letter = raw.decode().split(" ")
            setattr(sums[name], names[letter], int(value))
        async for page in self._pages(tag):
            for _, entry in page:
                sums[entry.account].add(entry)
        return sums

    async def _open_holds(self, tag: str) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for raw in await self._store.command("ZRANGE", self._store.keys.shard(tag, "due"), 0, -1):
            account, hold_id = split_member(raw)
            found[account].add(hold_id)
        return found

    async def _check(self, account: str, sums: Sums, open_holds: set[str]) -> list[Mismatch]:
        keys = self._store.keys
        packed = await self._store.command("GET", keys.balance(account))
        if packed is None:
            return [Mismatch(account, "balance", "the journal has entries, the account is absent")]
        g, p, d, _ns, _per, _pe, _pg, _mg, seq, _lu, h, _oj, fl, _th = unpack_account(packed)
        held = [
            await self._store.command("GET", keys.hold(account, hold_id)) for hold_id in open_holds
        ]
        holds = [unpack_hold(raw) for raw in held if raw is not None]
        is_held = [state == "held" for state, _ in holds] + [False] * (len(held) - len(holds))
        total = sum(cost for _, cost in holds)
        rules = [
            (
                "balance",
                (g, p, d) == (sums.grant, sums.packs, sums.debt),
                f"balance {(g, p, d)}, journal {(sums.grant, sums.packs, sums.debt)}",
            ),
            ("sequence", not sums.gaps and seq == sums.number, f"{sums.gaps} {seq}/{sums.number}"),
            ("bounds", min(g, p, d) >= 0 and d <= fl, f"{(g, p, d)}, floor {fl}"),
            ("one ending", not sums.twice, f"{sums.twice}"),
            ("due index", all(is_held) and total == h, f"held {h}, indexed {total}"),
            ("debt last", d == 0 or (g == 0 and p == 0), f"{(g, p, d)}"),
        ]
        return [Mismatch(account, rule, detail) for rule, is_kept, detail in rules if not is_kept]

    async def export(self, sink: Sink) -> int:
        """Write what is new as one segment per shard, then trim it; tell how many entries.

        A crash between writing and trimming writes the same segment again under the same name.

        Args:
            sink: Stores a segment (JSON lines) under a name; must be durable when it returns.
        """
        total = 0
        for tag in self._tags(None):
            async for page in self._pages(tag):
                first, last = page[0][0], page[-1][0]
                lines = (
                    json.dumps(
                        [
                            entry_id,
                            e.account,
                            e.number,
                            e.kind,
                            e.entry_id,
                            e.grant,
                            e.packs,
                            e.debt,
                            e.note,
                        ],
                        separators=(",", ":"),
                        ensure_ascii=False,
                    )
                    for entry_id, e in page
                )
                await sink(f"{tag[1:-1]}/{first}.jsonl", "\n".join(lines).encode() + b"\n")
                await self._store.run(
                    "journal_trim",
                    [self._store.keys.shard(tag, "j"), self._store.keys.shard(tag, "jb")],
                    [last, PAGE],
                )
                total += len(page)
        return total
