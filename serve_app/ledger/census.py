"""What is open in the ledger, over all shards: holds, jobs, and unarchived journal calls."""

from dataclasses import dataclass
from typing import Any

from serve_app.store.client import Store


@dataclass(frozen=True, slots=True)
class Census:
    """The ledger as it is now.

    Attributes:
        holds: Open holds.
        overdue_s: How far the most overdue hold is past its deadline.
        jobs: Jobs that have not ended.
        unexported_s: Age of the oldest call of the journal that is not in the archive.
    """

    holds: int
    overdue_s: float
    jobs: int
    unexported_s: float


async def take_census(store: Store) -> Census:
    """Look at every shard.

    Raises:
        ServiceUnavailableError: The ledger is unavailable.
    """
    keys, now_ms = store.keys, await store.now_ms()
    tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
    due, open_jobs = (
        [keys.shard(tag, "due") for tag in tags],
        [keys.job_index(tag, "open") for tag in tags],
    )
    holds = await store.ask(due, "ZCARD")
    first_due = await store.ask(due, "ZRANGE", 0, 0, "WITHSCORES")
    jobs = await store.ask(open_jobs, "ZCARD")
    oldest_calls = await store.ask(
        [keys.shard(tag, "j") for tag in tags], "XRANGE", "-", "+", "COUNT", 1
    )
    deadlines = [first_score(one) for one in first_due.values()]
    written = [int(call[0][0].split(b"-")[0]) for call in oldest_calls.values()]
    return Census(
        holds=sum(holds.values()),
        overdue_s=max(0.0, (now_ms - min(deadlines, default=now_ms)) / 1000),
        jobs=sum(jobs.values()),
        unexported_s=max(0.0, (now_ms - min(written, default=now_ms)) / 1000),
    )


def first_score(found: list[Any]) -> float:
    """Read the score of the only member in a ``WITHSCORES`` reply, in either protocol."""
    return float(found[0][1] if isinstance(found[0], list | tuple) else found[1])
