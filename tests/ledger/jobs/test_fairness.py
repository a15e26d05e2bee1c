"""One owner's backlog does not hold up others, and owners get equal shares."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.records import JobPolicy
from serve_app.ledger.jobs.types import NewJob
from serve_app.store.client import Store
from tests.store.setting import rich_tiers, some_work

pytestmark = pytest.mark.redis

BACKLOG = 2_000
SERVICE_S = 0.25
WORKERS = 2
OWNERS = 20
EACH = 60
MEASURED = 400


@pytest.fixture
async def jobs(live_store: Store) -> AsyncIterator[Jobs]:
    policy = JobPolicy(max_wait_s=1e9, owner_in_flight=1000)
    jobs = Jobs(live_store, rich_tiers(), policy)
    yield jobs
    await jobs.close()


async def submit_many(jobs: Jobs, owner: str, count: int, tier: str = "pro") -> None:
    numbers = iter(range(count))

    async def submit() -> None:
        for number in numbers:
            await jobs.submit(NewJob(f"{owner}-{number}", owner, tier, some_work(), 1))

    await asyncio.gather(*(submit() for _ in range(32)))


async def test_backlog_of_one_owner_does_not_delay_another(jobs: Jobs) -> None:
    await submit_many(jobs, "whale", BACKLOG)
    started: list[str] = []

    async def work(name: str) -> None:
        while "minnow-0" not in started:
            claim = await jobs.claim(name, wait_s=0.5)
            assert claim is not None
            started.append(claim.job_id)
            await asyncio.sleep(SERVICE_S)
            await jobs.finish(claim, b"")

    workers = [asyncio.create_task(work(f"w{number}")) for number in range(WORKERS)]
    async with asyncio.timeout(60):
        while len(started) < 2 * WORKERS:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await submit_many(jobs, "minnow", 1)
    n_before = len(started)
    await asyncio.gather(*workers)
    # Each worker may have asked for its next job before the minnow's was submitted.
    assert started.index("minnow-0") <= n_before + WORKERS
    assert n_before >= WORKERS


async def test_owners_share_alike(jobs: Jobs) -> None:
    """Jain's index over the jobs served while all have work; owners differ tenfold in backlog."""
    for number in range(OWNERS):
        await submit_many(jobs, f"owner{number}", EACH * (10 if number == 0 else 1))
    served: Counter[str] = Counter()
    for _ in range(MEASURED):
        claim = await jobs.claim("w")
        assert claim is not None
        served[claim.account] += 1
        await jobs.finish(claim, b"")
    shares = [served[f"owner{number}"] for number in range(OWNERS)]
    jain = sum(shares) ** 2 / (OWNERS * sum(share**2 for share in shares))
    assert jain >= 0.95, shares
