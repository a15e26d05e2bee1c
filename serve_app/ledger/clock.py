"""A second clock next to the server's, so that no month begins far before its time.

Invariant: once the keeper has run, no account enters a month more than ``LEAD_MS`` before it begins
by the keeper's clock.
"""

import time

from serve_app.store.client import Store

LEAD_MS = 3_600_000
"""How far the server's clock may be ahead; also how long months still begin without a keeper."""


async def confirm_clock(store: Store, here_ms: int | None = None) -> None:
    """Set, by this machine's clock, the latest time that each shard may assume; run every minute.

    Args:
        store: The ledger role.
        here_ms: Time to use instead of this machine's clock.

    Raises:
        RuntimeError: The server is further ahead; no new month begins until its clock is set.
        ServiceUnavailableError: The ledger is unavailable.
    """
    keys, now_ms = store.keys, int(time.time() * 1000) if here_ms is None else here_ms
    tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
    await store.batch([("SET", keys.shard(tag, "latest"), now_ms + LEAD_MS) for tag in tags])
    ahead_ms = await store.now_ms() - now_ms
    if ahead_ms > LEAD_MS:
        raise RuntimeError(
            f"the ledger's clock is {ahead_ms / 3_600_000:.1f} hours ahead: set it; until then no "
            "month begins"
        )
