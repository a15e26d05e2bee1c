"""Reads and audits the journal.

Invariant: nothing leaves the stream before it is exported and folded into the base sums, so an
audit always covers an account from its first entry.
"""

import json
import struct
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from serve_app.domain.credits import AuditReport, JournalEntry, Mismatch
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.packed import unpack_account, unpack_hold
from serve_app.store.client import Store, from_ms
from serve_app.store.keys import SEPARATOR, split_member

PAGE = 100
"""Stream entries per read; each holds up to a few hundred journal entries."""

DELTAS = struct.Struct("<4d")
LOST = "lost"
OPENING = "opening"
"""First entry of a replacement archive: the sum of an account's entries up to then."""

ENDINGS = frozenset({"commit", "void", "reap"})
MARKS = frozenset({b"exported", b"reconciled", b"claimed"})
SNAPSHOT_TRIES = 10


@dataclass(frozen=True, slots=True)
class Call:
    """What one script call wrote: entries, and what accounts, holds and top-ups were afterwards."""

    call_id: str
    entries: list[JournalEntry]
    accounts: dict[str, bytes] = field(default_factory=dict)
    holds: dict[str, bytes] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    topups: dict[str, dict[str, str]] = field(default_factory=dict)
    payments: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Payments that an opening lists, oldest first: their text and time (Unix ms)."""
    is_opening: bool = False


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
        """Add one entry; one that takes back lost entries counts only in the archive."""
        if entry.kind == LOST:
            return
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A shard at one moment: journal sums, balances and open holds by account."""

    sums: dict[str, Sums]
    balances: dict[str, bytes | None]
    open_holds: dict[str, set[str]]


def parse_entries(fields: dict[bytes, bytes]) -> list[JournalEntry]:
    """Read one stream entry: all that one script call wrote; a note belongs to the last."""
    text = fields[b"e"].decode()
    words = text.split(" ") if text else []
    entries = []
    deltas = DELTAS.iter_unpack(fields[b"v"])
    for kind, member, numbers in zip(words[::2], words[1::2], deltas, strict=True):
        account, entry_id = member.split(SEPARATOR)
        number, grant, packs, debt = map(int, numbers)
        entries.append(JournalEntry(account, number, kind, entry_id, grant, packs, debt))
    if b"w" in fields:
        entries[-1] = replace(entries[-1], note=fields[b"w"].decode())
    return entries


def parse_call(call_id: str, fields: dict[bytes, bytes]) -> Call:
    """Read one stream entry with its images, whose names ``lua/lib/ledger.lua`` explains."""
    call = Call(call_id, parse_entries(fields))
    for raw, value in fields.items():
        letter, name = raw[:1], raw[1:].decode()
        if not name:
            continue
        match letter:
            case b"a":
                call.accounts[name] = value
            case b"h":
                call.holds[name] = value
            case b"d":
                call.deadlines[name] = int(value)
            case b"t":
                flat = [str(word) for word in json.loads(value)]
                call.topups[name] = dict(zip(flat[::2], flat[1::2], strict=True))
    return call


def pairs_of(flat: list[bytes]) -> dict[bytes, bytes]:
    """Make a mapping of alternating names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def mapping_of(found: dict[bytes, bytes] | list[bytes]) -> dict[bytes, bytes]:
    """Read a reply of ``HGETALL``, in either protocol."""
    return found if isinstance(found, dict) else pairs_of(found)


def base_sums(base: dict[bytes, bytes]) -> dict[str, Sums]:
    """Read the sums of what was exported."""
    sums: dict[str, Sums] = defaultdict(Sums)
    names = {"n": "number", "g": "grant", "p": "packs", "d": "debt"}
    for raw, value in base.items():
        if raw not in MARKS:
            name, letter = raw.decode().split(" ")
            setattr(sums[name], names[letter], int(value))
    return sums


class Journal:
    """Reads the journal of all shards."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def tags(self, account: str | None = None) -> list[str]:
        """Return the hash tag of an account's shard, or of all shards."""
        keys = self._store.keys
        if account is not None:
            return [keys.tag(account)]
        return [keys.shard_tag(shard) for shard in range(keys.shards)]

    async def pages(self, tag: str) -> AsyncIterator[list[Call]]:
        """Yield a shard's stream in pages of script calls, oldest first."""
        stream, after = self._store.keys.shard(tag, "j"), "-"
        while True:
            page = await self._store.command("XRANGE", stream, after, "+", "COUNT", PAGE)
            if not page:
                return
            yield [parse_call(call_id.decode(), fields) for call_id, fields in page]
            after = f"({page[-1][0].decode()}"

    async def trim(self, tag: str, until: str) -> None:
        """Drop a shard's calls up to an archived one, after adding them to the sums."""
        keys = [self._store.keys.shard(tag, name) for name in ("j", "jb", "e")]
        while await self._store.run("journal_trim", keys, [until, PAGE]) == PAGE:
            pass

    async def entries(self, account: str) -> list[JournalEntry]:
        """Return the entries of an account that are still in the stream, oldest first."""
        return [
            entry
            async for page in self.pages(self._store.keys.tag(account))
            for call in page
            for entry in call.entries
            if entry.account == account
        ]

    async def audit(self, account: str | None = None) -> AuditReport:
        """Check every invariant of one account, or of all, even while they are in use.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        mismatches: list[Mismatch] = []
        accounts = entries = holds = 0
        for tag in self.tags(account):
            seen = await self._snapshot(tag)
            month = int(f"{from_ms(await self._store.now_ms()):%Y%m}")
            for name, sums in seen.sums.items():
                if account in (None, name):
                    open_holds = seen.open_holds.get(name, set())
                    accounts += 1
                    entries += sums.number
                    holds += len(open_holds)
                    found = await self._check(name, sums, seen.balances[name], open_holds, month)
                    mismatches += found
        return AuditReport(accounts, entries, holds, tuple(mismatches))

    async def _snapshot(self, tag: str) -> Snapshot:
        """Read a shard as of one moment, most of its journal before that.

        Until that moment the journal only grows at its end, unless it is trimmed: then, or when
        an account appears, the shard is read again.
        """
        keys = self._store.keys
        base_key, stream, due_key = (keys.shard(tag, name) for name in ("jb", "j", "due"))
        for _ in range(SNAPSHOT_TRIES):
            found = await self._store.command("HGETALL", base_key)
            base = mapping_of(found)
            sums, last = base_sums(base), "-"
            async for page in self.pages(tag):
                last = page[-1].call_id
                for entry in (entry for call in page for entry in call.entries):
                    sums[entry.account].add(entry)
            names = list(sums)
            base_then, tail, due, balances = await self._store.run(
                "snapshot",
                [base_key, stream, due_key, *(keys.balance(name) for name in names)],
                [last],
            )
            for _, fields in tail:
                for entry in parse_entries(pairs_of(fields)):
                    sums[entry.account].add(entry)
            if pairs_of(base_then) == base and len(sums) == len(names):
                open_holds: dict[str, set[str]] = defaultdict(set)
                for name, hold_id in map(split_member, due):
                    open_holds[name].add(hold_id)
                return Snapshot(sums, dict(zip(names, balances, strict=True)), open_holds)
        raise ServiceUnavailableError("the journal is trimmed too often to be audited now")

    async def _check(
        self,
        account: str,
        sums: Sums,
        packed: bytes | None,
        open_holds: set[str],
        month: int,
    ) -> list[Mismatch]:
        if packed is None:
            return [Mismatch(account, "balance", "the journal has entries, the account is absent")]
        state = unpack_account(packed)
        credits = (state.grant, state.packs, state.debt)
        length, held, debt = state.journal_length, state.held, state.debt
        total, strays = await self._held(account, open_holds)
        rules = [
            (
                "balance",
                credits == (sums.grant, sums.packs, sums.debt),
                f"balance {credits}, journal {(sums.grant, sums.packs, sums.debt)}",
            ),
            (
                "sequence",
                not sums.gaps and length == sums.number,
                f"{sums.gaps} {length}/{sums.number}",
            ),
            (
                "bounds",
                min(credits) >= 0 and debt <= state.floor,
                f"{credits}, floor {state.floor}",
            ),
            ("one ending", not sums.twice, f"{sums.twice}"),
            (
                "due index",
                not strays and total == held,
                f"held {held}, indexed {total}, stray {strays}",
            ),
            (
                "month",
                state.period <= month,
                f"{state.period} has not begun: run `afa ledger repair-period {account}`",
            ),
            ("debt last", debt == 0 or state.grant == state.packs == 0, f"{credits}"),
        ]
        return [Mismatch(account, rule, detail) for rule, is_kept, detail in rules if not is_kept]

    async def _held(self, account: str, open_holds: set[str]) -> tuple[int, list[str]]:
        """Return the sum of the holds, and those that are indexed as open but are not open."""
        keys, total, strays = self._store.keys, 0, []
        due = keys.shard(keys.tag(account), "due")
        for hold_id in sorted(open_holds):
            packed = await self._store.command("GET", keys.hold(account, hold_id))
            state, cost = unpack_hold(packed) if packed is not None else ("absent", 0)
            total += cost
            if state != "held":  # it may have ended since; its record keeps the cost
                name = f"{account}{SEPARATOR}{hold_id}"
                if await self._store.command("ZSCORE", due, name) is not None:
                    strays.append(hold_id)
        return total, strays
