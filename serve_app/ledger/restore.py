"""Build a ledger from its archive alone.

Invariant: only an empty ledger is restored, and only from an archive without problems; balances,
open holds, months and allowances are then those of the archive's last call, to the bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.ledger.archive import Archive
from serve_app.ledger.fold import Fold, read_chain
from serve_app.ledger.ledger import PAYMENT_ID_KEPT_MS
from serve_app.ledger.packed import ACCOUNT, pack_hold, unpack_account, unpack_whole_hold
from serve_app.store.client import Store
from serve_app.store.keys import split_member

AT_ONCE = 1000
PROBLEMS_TOLD = 20

Command = tuple[str | bytes | int, ...]


class RestoreRefusedError(ValueError):
    """The ledger is not empty, or the archive cannot be restored exactly."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of an archive."""

    shards: int
    accounts: int
    entries: int
    open_holds: int


@dataclass(frozen=True, slots=True)
class Verified:
    """What an archive holds, and what is wrong with it."""

    shards: int
    segments: int
    accounts: int
    entries: int
    problems: list[str]


async def verify(archive: Archive) -> Verified:
    """Read an archive whole: its chain, its numbers, its sums against its states."""
    problems: list[str] = []
    accounts = entries = segments = 0
    found = await archive.segments()
    for listed in found.values():
        fold = Fold()
        async for _, call in read_chain(archive, listed, problems):
            fold.add(call)
        problems += fold.problems()
        segments, accounts = segments + len(listed), accounts + len(fold.accounts)
        entries += fold.n_entries
    return Verified(len(found), segments, accounts, entries, problems)


async def restore(store: Store, archive: Archive) -> Restored:
    """Write what an archive tells into an empty ledger.

    A job is not in the archive: its hold is given back when its time is over.

    Raises:
        RestoreRefusedError: See the class; nothing was written.
        ServiceUnavailableError: The ledger went away: empty it and begin again.
    """
    await _refuse_unless_empty(store)
    seen = await verify(archive)
    if seen.problems:
        told = "; ".join(seen.problems[:PROBLEMS_TOLD])
        raise RestoreRefusedError(f"the archive cannot be restored exactly: {told}")
    n_holds, now_ms = 0, await store.now_ms()
    found = await archive.segments()
    for shard, listed in found.items():
        fold = Fold()
        async for _, call in read_chain(archive, listed, []):
            fold.add(call)
        tag = f"{{{shard}}}"
        for account in fold.accounts:
            if store.keys.tag(account) != tag:
                raise RestoreRefusedError(
                    f"{account} lies in shard {shard} of the archive, not in "
                    f"{store.keys.tag(account)[1:-1]}: set AFA_LEDGER_SHARDS as it was"
                )
        n_holds += len(fold.deadlines)
        commands = list(_commands(store, tag, fold, now_ms))
        commands.append(("HSET", store.keys.shard(tag, "jb"), "exported", listed[-1].last))
        for start in range(0, len(commands), AT_ONCE):
            await store.batch(commands[start : start + AT_ONCE])
    return Restored(len(found), seen.accounts, seen.entries, n_holds)


async def _refuse_unless_empty(store: Store) -> None:
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


def _commands(store: Store, tag: str, fold: Fold, now_ms: int) -> Iterator[Command]:
    keys = store.keys
    base = keys.shard(tag, "jb")
    for account, packed in fold.accounts.items():
        state = unpack_account(packed)._replace(open_jobs=0)
        yield ("SET", keys.balance(account), ACCOUNT.pack(*state))
        sums = {"n": state.journal_length, "g": state.grant, "p": state.packs, "d": state.debt}
        yield ("HSET", base, *(w for k, v in sums.items() for w in (f"{account} {k}", v)))
    for member, packed in fold.holds.items():
        account, hold_id = split_member(member.encode())
        hold = unpack_whole_hold(packed)
        if hold.state == "held":
            yield ("ZADD", keys.shard(tag, "due"), fold.deadlines[member], member)
            packed = pack_hold(hold._replace(job=0))
        yield ("SET", keys.hold(account, hold_id), packed)
    for at_ms, member in fold.ended:
        yield ("RPUSH", keys.shard(tag, "e"), f"{at_ms} {member}")
    for paid in fold.payments:
        left_ms = paid.at_ms + PAYMENT_ID_KEPT_MS - now_ms
        if left_ms > 0:
            yield ("SET", keys.payment(paid.account, paid.payment_id), paid.seen, "PX", left_ms)
    for number, (account, topup) in enumerate(fold.topups.items(), 1):
        yield ("HSET", keys.topup(account), *(word for pair in topup.items() for word in pair))
        if "intent" in topup:
            yield ("ZADD", keys.shard(tag, "intents"), number, account)
