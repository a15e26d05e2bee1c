"""Build a ledger from its archive alone.

Invariant: only an empty ledger is restored, and only from an archive without problems; balances,
open holds, months and allowances are then exactly those of the archive's last call. Until all is
written, the ledger is marked as half restored, and no afa process accepts it.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import islice

from serve_app.ledger.archive.fold import Fold, read_chain
from serve_app.ledger.archive.segments import Archive, Segment, cut_off
from serve_app.ledger.ledger import PAYMENT_ID_KEPT_MS
from serve_app.ledger.packed import ACCOUNT, pack_hold, unpack_account, unpack_whole_hold
from serve_app.ledger.topups import opened_at
from serve_app.store.client import LEDGER_FORMAT, Store
from serve_app.store.keys import FORMAT_KEY, HALF_RESTORED, split_member

AT_ONCE = 1000
PROBLEMS_TOLD = 20

Command = tuple[str | bytes | int, ...]


class RestoreRefusedError(ValueError):
    """The ledger is not empty, or the archive cannot be restored exactly."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored from an archive."""

    shards: int
    accounts: int
    entries: int
    open_holds: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What an archive holds, and what is wrong with it.

    Attributes:
        has_head: Without a head, missing newest segments of a shard cannot be detected.
    """

    has_head: bool
    shards: int
    segments: int
    accounts: int
    entries: int
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of an archive, read to its end."""

    name: str
    segments: list[Segment]
    fold: Fold


async def read(archive: Archive, problems: list[str]) -> AsyncIterator[Shard]:
    """Read an archive once; check its ends, chain and numbers, and its sums against its states."""
    head, segments = await archive.head(), await archive.segments()
    problems += cut_off(head, segments)
    for name, listed in segments.items():
        fold = Fold()
        async for _, call in read_chain(archive, listed, problems):
            fold.add(call)
        problems += fold.problems()
        yield Shard(name, listed, fold)


async def verify(archive: Archive) -> Verified:
    """Read and check a whole archive."""
    problems: list[str] = []
    has_head = bool(await archive.head())
    shards = accounts = entries = segments = 0
    async for shard in read(archive, problems):
        shards, segments = shards + 1, segments + len(shard.segments)
        accounts += len(shard.fold.accounts)
        entries += shard.fold.n_entries
    return Verified(has_head, shards, segments, accounts, entries, problems)


async def restore(store: Store, archive: Archive) -> Restored:
    """Write the contents of an archive into an empty ledger.

    The archive is read once. Only what the ledger will hold is kept in memory. Jobs are not in the
    archive: their holds are given back when their time is over.

    Raises:
        RestoreRefusedError: See the class; nothing was written.
        ServiceUnavailableError: The ledger became unavailable: empty it and begin again.
        ValueError: The ledger was partly restored before, or has another number of shards.
    """
    await _refuse_unless_empty(store)
    problems: list[str] = []
    shards = [shard async for shard in read(archive, problems)]
    for shard in shards:
        problems += _misplaced(store, shard)
    if problems:
        told = "; ".join(problems[:PROBLEMS_TOLD])
        raise RestoreRefusedError(f"the archive cannot be restored exactly: {told}")
    # Not earlier: it fixes the ledger's number of shards, which may not fit the archive.
    await store.claim_shards()
    now_ms = await store.now_ms()
    await store.command("SET", FORMAT_KEY, HALF_RESTORED)
    for shard in shards:
        commands = _commands(store, shard, now_ms)
        while some := list(islice(commands, AT_ONCE)):
            await store.batch(some)
    await store.command("SET", FORMAT_KEY, LEDGER_FORMAT)
    folds = [shard.fold for shard in shards]
    return Restored(
        len(shards),
        sum(len(fold.accounts) for fold in folds),
        sum(fold.n_entries for fold in folds),
        sum(len(fold.deadlines) for fold in folds),
    )


def _misplaced(store: Store, shard: Shard) -> list[str]:
    tags = {account: store.keys.tag(account)[1:-1] for account in shard.fold.accounts}
    return [
        f"{account} is in shard {shard.name} of the archive, not in {tag}: set "
        "AFA_LEDGER_SHARDS as it was"
        for account, tag in tags.items()
        if tag != shard.name
    ]


async def _refuse_unless_empty(store: Store) -> None:
    await store.refuse_half_restored()
    keys = store.keys
    tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
    found = await store.batch(
        [("EXISTS", keys.shard(tag, name)) for tag in tags for name in ("j", "jb", "due")]
    )
    if any(found):
        raise RestoreRefusedError(
            "this ledger is not empty: an archive is restored into an empty Redis only; after a "
            "failover run `afa ledger reconcile`"
        )


def _commands(store: Store, shard: Shard, now_ms: int) -> Iterator[Command]:
    keys, tag, fold = store.keys, f"{{{shard.name}}}", shard.fold
    base, stream, last = keys.shard(tag, "jb"), keys.shard(tag, "j"), shard.segments[-1].last
    for account, packed in fold.accounts.items():
        state = unpack_account(packed)._replace(open_jobs=0)
        sums = {"n": state.journal_length, "g": state.grant, "p": state.packs, "d": state.debt}
        yield ("HSET", base, *(w for k, v in sums.items() for w in (f"{account} {k}", v)))
        yield ("SET", keys.balance(account), ACCOUNT.pack(*state))
    for member, packed in fold.holds.items():
        account, hold_id = split_member(member.encode())
        hold = unpack_whole_hold(packed)
        if hold.state == "held":
            yield ("ZADD", keys.shard(tag, "due"), fold.deadlines[member], member)
            packed = pack_hold(hold._replace(job=0))
        yield ("SET", keys.hold(account, hold_id), packed)
    for member, at_ms in fold.ended.items():
        yield ("RPUSH", keys.shard(tag, "e"), f"{at_ms} {member}")
    for paid in fold.payments:
        left_ms = paid.at_ms + PAYMENT_ID_KEPT_MS - now_ms
        if left_ms > 0:
            yield ("SET", keys.payment(paid.account, paid.payment_id), paid.seen, "PX", left_ms)
    for account, topup in fold.topups.items():
        yield ("HSET", keys.topup(account), *(word for pair in topup.items() for word in pair))
        if "intent" in topup:
            yield ("ZADD", keys.shard(tag, "intents"), opened_at(topup["intent"]), account)
    # New calls get later ids, even if this server's clock is behind.
    yield ("XADD", stream, "MAXLEN", 0, last, "e", "")
    # Last: until then an exporter finds that the shard lacks archived calls.
    yield ("HSET", base, "exported", last)
