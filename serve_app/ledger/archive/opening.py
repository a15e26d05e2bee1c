"""Begin a new archive from what the ledger holds, when the old one is lost for good.

Invariant: a shard's archive begins with one call, under the id of the last call in its stream, and
agrees with the ledger at that moment. Calls of the stream that no archive has are kept separately.
"""

import secrets
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from serve_app.domain.credits import JournalEntry
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.archive.export import Marks, lacking, states
from serve_app.ledger.archive.fold import Fold, Payment
from serve_app.ledger.archive.segments import Archive, Segment
from serve_app.ledger.journal import OPENING, Call, Journal, mapping_of
from serve_app.ledger.ledger import PAYMENT_ID_KEPT_MS
from serve_app.ledger.packed import HELD, unpack_account
from serve_app.store.client import Store
from serve_app.store.keys import BEGINNING_KEY, join_member, split_member

LOCK_S = 300
SCAN_LIMIT_S = 600.0
PROBLEMS_TOLD = 5
AT_ONCE = 1000

NOT_EMPTY = "there is an archive already: one is begun in an empty place"
TAKEN = (
    "the journal is exported to another place meanwhile: start the service with AFA_JOURNAL_STORE "
    "set to the new one, and run the command again"
)


class OpeningRefusedError(ValueError):
    """No archive can be begun in that place, or at this time."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The number of shards that an archive begins with, and of their calls that no archive had."""

    shards: int
    calls_kept: int


@dataclass(slots=True)
class Names:
    """The names that a shard has keys for; a payment is a member of account and id."""

    accounts: set[str] = field(default_factory=set)
    topups: set[str] = field(default_factory=set)
    payments: set[str] = field(default_factory=set)


async def begin_archive(store: Store, archive: Archive) -> Opened:
    """Write the beginning of an archive; the service may run meanwhile.

    If it is interrupted, call it again: what it had begun stays. A shard that has exported nothing
    needs no opening: its stream has everything.

    Raises:
        OpeningRefusedError: The place has an archive, the ledger does not pass its audit, or
            another exporter or a second call of this is running.
        ServiceUnavailableError: The ledger or the archive is unavailable; call again.
    """
    marks = {tag: of for tag, of in (await _marks(store)).items() if any(of)}
    begun = await _begun(archive, marks)
    await _refuse_unless_clean(store)
    names = await _names(store)
    token = secrets.token_hex(8).encode()
    if not await store.command("SET", BEGINNING_KEY, token, "NX", "EX", LOCK_S):
        raise OpeningRefusedError(
            "an archive is being begun, or that was broken off some minutes ago; try again in five"
        )
    calls_kept = 0
    try:
        for tag, known in marks.items():
            found = begun.get(tag[1:-1])
            if found is None or not all(found.has(mark) for mark in known if mark):
                await _prolong(store, token)
                calls_kept += await _begin_shard(store, archive, tag, known, names[tag], found)
        marks = await _marks(store)
        listed = await archive.segments()
        if lacking({}, listed, marks):
            raise OpeningRefusedError(TAKEN)
        if not await archive.head():  # otherwise an exporter has already gone on
            await archive.put_head({shard: one[-1].number for shard, one in listed.items()})
    finally:
        with suppress(ServiceUnavailableError):
            if await store.command("GET", BEGINNING_KEY) == token:
                await store.command("DEL", BEGINNING_KEY)
    return Opened(sum(any(of) for of in marks.values()), calls_kept)


async def _marks(store: Store) -> dict[str, Marks]:
    tags = Journal(store).tags()
    return dict(zip(tags, [marks for _, marks in await states(store, tags)], strict=True))


async def _begun(archive: Archive, marks: dict[str, Marks]) -> dict[str, Segment]:
    """Return the shards that an earlier attempt has begun; the head is written last."""
    head, listed = await archive.head(), await archive.segments()
    if head and not lacking(head, listed, marks):
        raise OpeningRefusedError(
            "the ledger goes on in this archive already: nothing is to be done"
        )
    is_ours = not head and all(f"{{{shard}}}" in marks for shard in listed)
    for segments in listed.values():
        calls = await archive.read(segments[0])
        is_ours = is_ours and len(segments) == 1 and [call.is_opening for call in calls] == [True]
    if not is_ours:
        raise OpeningRefusedError(NOT_EMPTY)
    return {shard: segments[0] for shard, segments in listed.items()}


async def _prolong(store: Store, token: bytes) -> None:
    """Extend the lock."""
    if await store.command("GET", BEGINNING_KEY) != token:
        raise OpeningRefusedError("another `afa ledger begin-archive` has begun meanwhile")
    await store.command("EXPIRE", BEGINNING_KEY, LOCK_S)


async def _refuse_unless_clean(store: Store) -> None:
    audit = await Journal(store).audit()
    if not audit.is_clean:
        some = audit.mismatches[:PROBLEMS_TOLD]
        told = "; ".join(f"{m.account}: {m.rule}: {m.detail}" for m in some)
        raise OpeningRefusedError(f"the ledger does not pass its audit: {told}")


async def _names(store: Store) -> dict[str, Names]:
    """List the names that exist, by tag; later ones are in the stream."""
    found: dict[str, Names] = defaultdict(Names)
    payments = []
    for key in await store.names("cr:{*}:[apt]:*", SCAN_LIMIT_S):
        _, tag, letter, name = key.split(":", 3)
        if letter == "a":
            found[tag].accounts.add(name)
        elif letter == "t":
            found[tag].topups.add(name)
        else:
            payments.append((tag, name.split(":")))
    for tag, parts in payments:
        # Account and id may contain colons; a key that could belong to two accounts is one key.
        cuts = ((":".join(parts[:n]), ":".join(parts[n:])) for n in range(1, len(parts)))
        owned = (join_member(*cut) for cut in cuts if cut[0] in found[tag].accounts)
        found[tag].payments.update(islice(owned, 1))
    return found


async def _begin_shard(
    store: Store, archive: Archive, tag: str, marks: Marks, names: Names, begun: Segment | None
) -> int:
    """Write a shard's opening and drop what it covers; return how many calls were kept aside."""
    fold = await _read_states(store, tag, names)
    # The stream is read after the states: it has whatever changed since then.
    calls = [call async for page in Journal(store).pages(tag) for call in page]
    for call in calls:
        fold.add(call)
    opening = _opening_of(fold, calls[-1].call_id if calls else marks[0])
    ids = {marks[0], *(call.call_id for call in calls)}
    if begun is not None and begun.last not in ids:
        raise OpeningRefusedError(NOT_EMPTY)
    ((_, marks_now),) = await states(store, [tag])
    if marks_now != marks:
        raise OpeningRefusedError(TAKEN)
    if calls:
        await archive.keep_aside(tag[1:-1], calls)
    if begun is not None and begun.last != opening.call_id:
        await archive.drop(begun)
    await archive.put(tag[1:-1], [opening], None)
    await Journal(store).trim(tag, opening.call_id)
    await store.command("HDEL", store.keys.shard(tag, "jb"), "reconciled")
    return len(calls)


async def _read_states(store: Store, tag: str, names: Names) -> Fold:
    """Read what a shard holds, though not all at one moment."""
    keys, due = store.keys, store.keys.shard(tag, "due")
    balances = await _get(store, {one: ("GET", keys.balance(one)) for one in names.accounts})
    topups = await _get(store, {one: ("HGETALL", keys.topup(one)) for one in names.topups})
    members = {member.decode() for member in await store.command("ZRANGE", due, 0, -1)}
    for batch in await store.command("LRANGE", keys.shard(tag, "e"), 0, -1):
        members.update(batch.decode().split(" ")[1:])
    holds = await _get(store, {one: ("GET", keys.hold(*_parts(one))) for one in members})
    held = [one for one, packed in holds.items() if packed.startswith(HELD)]
    deadlines = await _get(store, {one: ("ZSCORE", due, one) for one in held})
    seen = await _get(store, {one: ("GET", keys.payment(*_parts(one))) for one in names.payments})
    left_ms = await _get(store, {one: ("PTTL", keys.payment(*_parts(one))) for one in seen})
    now_ms = await store.now_ms()
    paid = [
        _payment(one, seen[one], now_ms + left - PAYMENT_ID_KEPT_MS)
        for one, left in left_ms.items()
    ]
    return Fold(
        accounts=balances,
        holds=holds,
        deadlines={one: int(float(score)) for one, score in deadlines.items()},
        topups={
            account: {name.decode(): text.decode() for name, text in mapping_of(found).items()}
            for account, found in topups.items()
        },
        payments=deque(sorted(paid, key=lambda one: one.at_ms)),
    )


def _opening_of(fold: Fold, call_id: str) -> Call:
    """Make the call that contains everything about a shard."""
    entries = []
    for account, packed in sorted(fold.accounts.items()):
        state = unpack_account(packed)
        if state.journal_length:
            credits = (state.grant, state.packs, state.debt)
            entries.append(JournalEntry(account, state.journal_length, OPENING, call_id, *credits))
    payments = {
        join_member(one.account, one.payment_id): (one.seen, one.at_ms) for one in fold.payments
    }
    return Call(
        *(call_id, entries, fold.accounts, fold.holds, fold.deadlines, fold.topups, payments),
        is_opening=True,
    )


def _payment(member: str, seen: bytes, at_ms: int) -> Payment:
    account, payment_id = _parts(member)
    return Payment(account, payment_id, seen.decode(), at_ms)


def _parts(member: str) -> list[str]:
    return split_member(member.encode())


async def _get(store: Store, wanted: dict[str, tuple[str | int, ...]]) -> dict[str, Any]:
    """Read many values; those that do not exist are left out."""
    found: dict[str, Any] = {}
    names = list(wanted)
    for place in range(0, len(names), AT_ONCE):
        some = names[place : place + AT_ONCE]
        answers = await store.batch([wanted[name] for name in some])
        found |= {
            name: answer
            for name, answer in zip(some, answers, strict=True)
            if answer not in (None, {}, [])
        }
    return found
