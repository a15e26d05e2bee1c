"""The ledger according to an archive: the sums of the entries, and the last image of everything.

Invariant: a fold without problems knows each account twice, by its entries and by its image, and
both agree; a chain without problems was not changed, and has no call twice.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import islice

from serve_app.domain.credits import JournalEntry
from serve_app.ledger.archive.segments import (
    FORMAT,
    Archive,
    CallId,
    Contents,
    Segment,
    SegmentError,
    parse_call_id,
)
from serve_app.ledger.ended_holds import KEPT_MS
from serve_app.ledger.journal import LOST, OPENING, Call
from serve_app.ledger.ledger import PAYMENT_ID_KEPT_MS
from serve_app.ledger.packed import HELD, unpack_account, unpack_hold
from serve_app.store.keys import SEPARATOR, split_member

PAYMENTS = frozenset({"topup", "bonus", "adjust"})
READ_AHEAD = 8


@dataclass(slots=True)
class Tally:
    """The sums of the entries of one account."""

    number: int = 0
    grant: int = 0
    packs: int = 0
    debt: int = 0
    open_branches: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    def add(self, entry: JournalEntry) -> None:
        """Add an entry. After a failover numbers may repeat, until a ``lost`` entry explains it."""
        self.grant += entry.grant
        self.packs += entry.packs
        self.debt += entry.debt
        if entry.kind == LOST:
            if entry.entry_id in self.open_branches:
                self.open_branches.remove(entry.entry_id)
            elif entry.entry_id.partition("-")[2] == str(self.number):
                self.number = int(entry.entry_id.partition("-")[0]) - 1
            else:
                self.gaps.append(f"{entry.entry_id} are taken back and were never there")
            return
        if entry.number <= self.number:
            self.open_branches.append(f"{entry.number}-{self.number}")
        elif entry.number > self.number + 1 and (self.number or entry.kind != OPENING):
            self.gaps.append(f"{self.number} is followed by {entry.number}")
        self.number = entry.number


@dataclass(frozen=True, slots=True)
class Payment:
    """A payment, grant or adjustment whose id is still remembered."""

    account: str
    payment_id: str
    seen: str
    at_ms: int


@dataclass(slots=True)
class Fold:
    """One shard, up to the last call that was added."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    accounts: dict[str, bytes] = field(default_factory=dict)
    holds: dict[str, bytes] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    topups: dict[str, dict[str, str]] = field(default_factory=dict)
    ended: OrderedDict[str, int] = field(default_factory=OrderedDict)
    payments: deque[Payment] = field(default_factory=deque)
    n_entries: int = 0

    def add(self, call: Call) -> None:
        """Add one script call."""
        at_ms = parse_call_id(call.call_id)[0]
        self._forget(at_ms)
        for entry in call.entries:
            self.tallies.setdefault(entry.account, Tally()).add(entry)
            if entry.kind in PAYMENTS:
                credits = entry.grant + entry.packs - entry.debt
                seen = f"{entry.kind} {credits}"
                self.payments.append(Payment(entry.account, entry.entry_id, seen, at_ms))
            elif entry.kind == "recover":
                self.payments.append(Payment(entry.account, entry.entry_id, entry.entry_id, at_ms))
        for member, (seen, paid_at_ms) in call.payments.items():
            account, payment_id = split_member(member.encode())
            self.payments.append(Payment(account, payment_id, seen, paid_at_ms))
        self.n_entries += len(call.entries)
        self.accounts.update(call.accounts)
        self.holds.update(call.holds)
        self.deadlines.update(call.deadlines)
        self.topups.update(call.topups)
        for member, packed in call.holds.items():
            self.ended.pop(member, None)
            if not packed.startswith(HELD):
                self.deadlines.pop(member, None)
                self.ended[member] = at_ms

    def _forget(self, at_ms: int) -> None:
        """Drop first what is forgotten by then: the next call may begin a hold with the same id."""
        while self.ended and next(iter(self.ended.values())) <= at_ms - KEPT_MS:
            self.holds.pop(self.ended.popitem(last=False)[0])
        while self.payments and self.payments[0].at_ms < at_ms - PAYMENT_ID_KEPT_MS:
            self.payments.popleft()

    def problems(self) -> list[str]:
        """Say where entries and images differ."""
        found = []
        held: Counter[str] = Counter()
        for member in self.deadlines:
            held[member.partition(SEPARATOR)[0]] += unpack_hold(self.holds[member])[1]
        for account, tally in self.tallies.items():
            found += [f"{account}: {gap}" for gap in tally.gaps]
            found += [f"{account}: entries {b} appear twice" for b in tally.open_branches]
            packed = self.accounts.get(account)
            if packed is None:
                found.append(f"{account}: archived by 0.1 alone, which kept no state")
                continue
            state = unpack_account(packed)
            here = (state.journal_length, state.grant, state.packs, state.debt)
            summed = (tally.number, tally.grant, tally.packs, tally.debt)
            if here != summed:
                found.append(f"{account}: its state is {here}, its entries come to {summed}")
            if state.held != held[account]:
                found.append(
                    f"{account}: {state.held} are held, its open holds come to {held[account]}"
                )
        return found


async def opened(
    archive: Archive, listed: list[Segment]
) -> AsyncIterator[tuple[Segment, Contents]]:
    """Yield segments in order while the next ones are being fetched: a bucket is slow."""
    waiting, following = deque[tuple[Segment, asyncio.Task[Contents]]](), iter(listed)
    try:
        while True:
            for segment in islice(following, READ_AHEAD - len(waiting)):
                waiting.append((segment, asyncio.create_task(archive.open(segment))))
            if not waiting:
                return
            segment, task = waiting.popleft()
            yield segment, await task
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)


async def read_chain(
    archive: Archive, listed: list[Segment], problems: list[str]
) -> AsyncIterator[tuple[Segment, Call]]:
    """Yield the calls of a shard's segments, each once; append problems of the chain."""
    last_digest, number = "", 0
    seen: CallId = (0, 0)
    try:
        async for segment, contents in opened(archive, listed):
            problems += _out_of_place(segment, contents, number, last_digest)
            if segment.number and contents.header.get("format") != FORMAT:
                return
            number, last_digest = segment.number, contents.digest
            for call in contents.calls:
                if not segment.number:  # format 1 may hold a call twice, in order
                    if parse_call_id(call.call_id) <= seen:
                        continue
                    seen = parse_call_id(call.call_id)
                yield segment, call
    except SegmentError as error:
        problems.append(str(error))


def _out_of_place(segment: Segment, contents: Contents, number: int, digest: str) -> list[str]:
    """Say why a segment cannot follow the one with this number and hash."""
    if not segment.number:
        return []
    name, head = segment.key, contents.header
    if head.get("format") != FORMAT:
        return [f"{name}: its format is {head.get('format')}, not {FORMAT}"]
    problems = []
    if segment.number != number + 1:
        problems.append(f"{name}: segment {number + 1} is missing, or there twice")
    elif head.get("previous") != digest:
        problems.append(f"{name}: the segment before it was changed")
    ids = [call.call_id for call in contents.calls]
    if [*ids[:1], *ids[-1:]] != [segment.first, segment.last]:
        problems.append(f"{name}: it holds other calls than its name says")
    return problems
