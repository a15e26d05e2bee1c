"""Begin an archive anew, from what the ledger holds, where the old one is lost for good.

Invariant: a shard's archive begins with one call, under the id of the last one that the shard had
made; both say the same from then on. What was in the stream and in no archive is kept beside it.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from serve_app.domain.credits import JournalEntry
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.archive import Archive, Segment, parse_call_id
from serve_app.ledger.export import states
from serve_app.ledger.journal import OPENING, Call, Journal, mapping_of
from serve_app.ledger.ledger import PAYMENT_ID_KEPT_MS
from serve_app.ledger.packed import HELD, unpack_account
from serve_app.store.client import Store
from serve_app.store.keys import join_member, split_member

TRIES = 20
SCAN_LIMIT_S = 600.0
PROBLEMS_TOLD = 5
AT_ONCE = 1000


class OpeningRefusedError(ValueError):
    """The place of the archive is not empty, or the ledger's sums are wrong."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What an archive begins with, and how many calls had been in none."""

    shards: int
    accounts: int
    calls_kept: int


@dataclass(slots=True)
class Names:
    """What a shard has keys of."""

    accounts: set[str] = field(default_factory=set)
    payments: set[str] = field(default_factory=set)
    """Accounts and ids, as members."""


async def begin_archive(store: Store, archive: Archive) -> Opened:
    """Write the beginning of an archive; the service may run meanwhile.

    If it is broken off, call it again: what it had begun stays.

    Raises:
        OpeningRefusedError: See the class; nothing was written.
        ServiceUnavailableError: The ledger is away, or too busy; call again.
    """
    begun = await _begun(archive)
    audit = await Journal(store).audit()
    if not audit.is_clean:
        told = "; ".join(f"{m.account}: {m.rule}" for m in audit.mismatches[:PROBLEMS_TOLD])
        raise OpeningRefusedError(f"the ledger does not pass its audit: {told}")
    names = await _names(store)
    shards = accounts = calls_kept = 0
    for tag in Journal(store).tags():
        ((n_calls, marks),) = await states(store, [tag])
        found = begun.get(tag[1:-1])
        if found is not None and all(found.has(mark) for mark in marks if mark):
            shards += 1
            continue
        if not n_calls and not any(marks):
            continue
        opening, calls = await _read(store, tag, names[tag])
        await _put(archive, tag[1:-1], found, opening, calls)
        await Journal(store).trim(tag, opening.call_id)
        await store.command("HDEL", store.keys.shard(tag, "jb"), "reconciled")
        shards, accounts = shards + 1, accounts + len(opening.accounts)
        calls_kept += len(calls)
    await archive.put_head(dict.fromkeys(await archive.segments(), 1))
    return Opened(shards, accounts, calls_kept)


async def _begun(archive: Archive) -> dict[str, Segment]:
    """Give the shards that an earlier try has begun; it writes the head last."""
    listed = await archive.segments()
    is_other = any(
        len(segments) > 1 or segments[0].first != segments[0].last for segments in listed.values()
    )
    if is_other or await archive.head():
        raise OpeningRefusedError("there is an archive already: one is begun in an empty place")
    return {shard: segments[0] for shard, segments in listed.items()}


async def _names(store: Store) -> dict[str, Names]:
    """List accounts and payments by tag; what comes later is in the stream."""
    found: dict[str, Names] = defaultdict(Names)
    for name in await store.names("cr:{*}:a:*", SCAN_LIMIT_S):
        _, tag, _, account = name.split(":", 3)
        found[tag].accounts.add(account)
    for name in await store.names("cr:{*}:p:*", SCAN_LIMIT_S):
        _, tag, _, rest = name.split(":", 3)
        parts = rest.split(":")
        for n in range(1, len(parts)):
            account = ":".join(parts[:n])
            if account in found[tag].accounts:
                found[tag].payments.add(join_member(account, ":".join(parts[n:])))
                break
    return found


async def _read(store: Store, tag: str, names: Names) -> tuple[Call, list[Call]]:
    """Read a shard at one moment; the second are the calls of its stream.

    Nothing trims the stream, so that it is as long as before when nothing was written meanwhile.
    """
    for _ in range(TRIES):
        ((n_calls, marks),) = await states(store, [tag])
        calls = [call async for page in Journal(store).pages(tag) for call in page]
        ids = [mark for mark in marks if mark] + [call.call_id for call in calls[-1:]]
        opening = await _opening(store, tag, max(ids, key=parse_call_id), names, calls)
        if await states(store, [tag]) == [(n_calls, marks)] and len(calls) == n_calls:
            return opening, calls
    raise ServiceUnavailableError(f"shard {tag[1:-1]} is too busy now; run the command again")


async def _opening(store: Store, tag: str, call_id: str, names: Names, calls: list[Call]) -> Call:
    keys, due = store.keys, store.keys.shard(tag, "due")
    accounts = sorted(names.accounts.union(*(call.accounts for call in calls)))
    payments = names.payments | {
        join_member(entry.account, entry.entry_id) for call in calls for entry in call.entries
    }
    members = {member for call in calls for member in call.holds}
    for batch in await store.command("LRANGE", keys.shard(tag, "e"), 0, -1):
        members.update(batch.decode().split(" ")[1:])
    members.update(member.decode() for member in await store.command("ZRANGE", due, 0, -1))
    balances = await _get(store, {one: ("GET", keys.balance(one)) for one in accounts})
    topups = await _get(store, {one: ("HGETALL", keys.topup(one)) for one in accounts})
    holds = await _get(store, {one: ("GET", keys.hold(*_parts(one))) for one in members})
    deadlines = await _get(
        store,
        {one: ("ZSCORE", due, one) for one, hold in holds.items() if hold.startswith(HELD)},
    )
    seen = await _get(store, {one: ("GET", keys.payment(*_parts(one))) for one in payments})
    left = await _get(store, {one: ("PTTL", keys.payment(*_parts(one))) for one in seen})
    now_ms = await store.now_ms()
    paid_at = {one: now_ms + left_ms - PAYMENT_ID_KEPT_MS for one, left_ms in left.items()}
    entries = []
    for account, packed in balances.items():
        state = unpack_account(packed)
        if state.journal_length:
            credits = (state.grant, state.packs, state.debt)
            entries.append(JournalEntry(account, state.journal_length, OPENING, call_id, *credits))
    return Call(
        call_id,
        entries,
        balances,
        holds,
        {one: int(float(score)) for one, score in deadlines.items()},
        {
            account: {name.decode(): text.decode() for name, text in mapping_of(found).items()}
            for account, found in topups.items()
        },
        {one: (seen[one].decode(), paid_at[one]) for one in sorted(seen, key=paid_at.__getitem__)},
    )


def _parts(member: str) -> list[str]:
    return split_member(member.encode())


async def _get(store: Store, wanted: dict[str, tuple[str | int, ...]]) -> dict[str, Any]:
    """Ask for many things; those that are not there are left out."""
    found: dict[str, Any] = {}
    names = list(wanted)
    for place in range(0, len(names), AT_ONCE):
        some = names[place : place + AT_ONCE]
        answers = await store.batch([wanted[name] for name in some])
        found |= {name: answer for name, answer in zip(some, answers, strict=True) if answer}
    return found


async def _put(
    archive: Archive, shard: str, begun: Segment | None, opening: Call, calls: list[Call]
) -> None:
    if calls:
        await archive.keep_aside(shard, calls)
    if begun is not None and begun.last != opening.call_id:
        await archive.drop(begun)
    await archive.put(shard, [opening], None)
