"""A claim whose caller has gone is given back at once, not when its lease ends."""

import asyncio
import contextlib
import time

import pytest

from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import NewJob
from serve_app.store.client import Store
from tests.store.setting import ACCOUNT, rich_tiers, some_work

pytestmark = pytest.mark.redis

FAR, FARTHEST = 60, 2_000


async def test_cancelled_claims_lose_no_job(live_store: Store) -> None:
    jobs = Jobs(live_store, rich_tiers())
    fences = []
    for n_turns in range(FARTHEST):
        if n_turns > FAR and len(set(fences)) > 1:
            break  # if the server is slow to answer, it takes more turns
        job_id = f"j{n_turns}"
        await jobs.submit(NewJob(job_id, ACCOUNT, "pro", some_work(), 1))
        goes = asyncio.create_task(jobs.claim("goes", wait_s=5))
        for _ in range(n_turns):
            await asyncio.sleep(0)
            if n_turns > FAR // 2:
                await asyncio.sleep(0.0002)
        goes.cancel()
        began = time.monotonic()
        with contextlib.suppress(asyncio.CancelledError):
            claimed = await goes
            assert claimed is not None
            fences.append(claimed.fence)
            await jobs.finish(claimed, b"{}")
            continue
        claimed = await jobs.claim("stays", wait_s=60)
        assert claimed is not None, n_turns
        assert claimed.job_id == job_id
        assert claimed.attempt == 1
        assert time.monotonic() - began < 30
        fences.append(claimed.fence)
        await jobs.finish(claimed, b"{}")
    # Some were cancelled before the job was started, some after.
    assert set(fences) == {1, 2}
    await jobs.close()
