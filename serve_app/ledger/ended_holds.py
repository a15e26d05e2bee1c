"""Ended holds: kept for two days, so that a late retry still finds what it did, then forgotten.

Invariant: a hold's record is deleted together with its place in the list, never before its time.

A time to live would cost an extra command for each charge and a second table for each look-up.
Instead, each call that leaves the journal adds a batch to its shard's list ``cr:{cNN}:e``: the
time, and the holds that the call had ended.
"""

from serve_app.store.client import Store
from serve_app.store.keys import split_member

KEPT_MS = 48 * 3600 * 1000
READ_AT_ONCE = 50
"""Batches read in one call; each names up to 256 holds."""

HOLDS_AT_ONCE = 1000


async def forget_ended(store: Store) -> int:
    """Delete the records of holds that ended two days ago; call it every few seconds.

    Returns:
        How many were deleted.

    Raises:
        ServiceUnavailableError: The ledger is unavailable.
    """
    keys = store.keys
    until = await store.now_ms() - KEPT_MS
    tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
    oldest = await store.ask([keys.shard(tag, "e") for tag in tags], "LINDEX", 0)
    forgotten = 0
    for key, first in oldest.items():
        found = 1 if ended_at(first) <= until else 0
        while found:
            found = await _forget_some(store, key, until)
            forgotten += found
    return forgotten


def ended_at(batch: bytes) -> int:
    """Return the time of a batch in Unix milliseconds."""
    return int(batch.partition(b" ")[0])


async def _forget_some(store: Store, key: str, until: int) -> int:
    batches: list[bytes] = []
    holds: list[str] = []
    for batch in await store.command("LRANGE", key, 0, READ_AT_ONCE - 1):
        if ended_at(batch) > until or len(holds) >= HOLDS_AT_ONCE:
            break
        batches.append(batch)
        for account, hold_id in map(split_member, batch.split(b" ")[1:]):
            holds.append(store.keys.hold(account, hold_id))
    return int(await store.run("forget", [key, *holds], batches)) if batches else 0
