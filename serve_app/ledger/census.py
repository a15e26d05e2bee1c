"""What is open in the ledger, over all shards: holds, jobs, and journal that is not archived."""

from dataclasses import dataclass
from typing import Any

from serve_app.store.client import Store


@dataclass(frozen=True, slots=True)
class Census:
    """The ledger as it is now.

    Attributes:
        holds: Open holds.
        overdue_s: How long ago the hold should have ended that is longest over its deadline.
        jobs: Jobs that have not ended.
        unexported_s: Age of the oldest call in the journal that is not in the archive.
    """

    holds: int
    overdue_s: float
    jobs: int
    unexported_s: float


async def take_census(store: Store) -> Census:
    """Look at every shard, in one trip.

    Raises:
        ServiceUnavailableError: The ledger is away.
    """
    keys, now_ms = store.keys, await store.now_ms()
    tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
    found = await store.batch(
        [
            command
            for tag in tags
            for command in (
                ("ZCARD", keys.shard(tag, "due")),
                ("ZRANGE", keys.shard(tag, "due"), 0, 0, "WITHSCORES"),
                ("ZCARD", keys.job_index(tag, "open")),
                ("XRANGE", keys.shard(tag, "j"), "-", "+", "COUNT", 1),
            )
        ]
    )
    holds, first_due, jobs, oldest_calls = (found[part::4] for part in range(4))
    deadlines = [first_score(due) for due in first_due if due]
    written = [int(call[0][0].split(b"-")[0]) for call in oldest_calls if call]
    return Census(
        holds=sum(holds),
        overdue_s=max(0.0, (now_ms - min(deadlines, default=now_ms)) / 1000),
        jobs=sum(jobs),
        unexported_s=max(0.0, (now_ms - min(written, default=now_ms)) / 1000),
    )


def first_score(found: list[Any]) -> float:
    """Read the score of the only member that Redis gave ``WITHSCORES``, in either protocol."""
    return float(found[0][1] if isinstance(found[0], list | tuple) else found[1])
