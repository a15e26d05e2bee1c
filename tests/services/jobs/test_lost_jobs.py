"""A poll of a job that a failover lost is asked to retry until the job is brought back."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis

from serve_app.domain.errors import JobNotFoundError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.ledger.archive.export import Exporter, LostEntriesError
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.jobs.records import JobPolicy
from serve_app.ledger.jobs.types import JobState, NewJob
from serve_app.services.jobs.submit import AnalysisService
from serve_app.store.client import connect
from tests.ledger.export_cases import archive, copy_of, fail_over
from tests.soak.pair import Pair, start_pair
from tests.store.setting import (
    ACCOUNT,
    CLOCK,
    SHARDS,
    Setting,
    open_setting,
    small_tiers,
    some_work,
)

pytestmark = pytest.mark.redis
CALLER = Caller("key_1", ACCOUNT, ACCOUNT, "basic", frozenset(), is_test=False)


@pytest.fixture
def kept() -> Iterator[Archive]:
    with archive() as kept:
        yield kept


def let_replica_catch_up(pair: Pair) -> None:
    with Redis.from_url(pair.replica.url) as replica, Redis.from_url(pair.primary.url) as primary:
        deadline = time.monotonic() + 60
        while replica.dbsize() < primary.dbsize():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def polled(s: Setting) -> AnalysisService:
    nothing = cast("Any", None)
    return AnalysisService(s.jobs, nothing, nothing, nothing)


async def complete(s: Setting, kept: Archive, job_id: str) -> None:
    await s.jobs.submit(NewJob(job_id, ACCOUNT, "basic", some_work(), 10))
    claim = await s.jobs.claim("w1")
    assert claim is not None
    assert await s.jobs.finish(claim, b"{}")
    await Exporter(s.store, kept).export()


async def test_it_is_503_until_the_ledger_is_reconciled(setting: Setting, kept: Archive) -> None:
    s, service = setting, polled(setting)
    await s.ledger.balance(ACCOUNT, "basic")
    await Exporter(s.store, kept).export()
    copy = await copy_of(s)
    await complete(s, kept, "job_x")
    await fail_over(s, copy)
    with pytest.raises(LostEntriesError):
        await Exporter(s.store, kept).export()
    with pytest.raises(ServiceUnavailableError, match="ask again") as refused:
        await service.get_job(CALLER, "job_x")
    assert refused.value.retry_after_s == 5
    await Reconciler(s.store, kept).reconcile()
    assert (await service.get_job(CALLER, "job_x")).state is JobState.FAILED
    with pytest.raises(JobNotFoundError):
        await service.get_job(CALLER, "job_y")


async def test_it_is_503_before_anybody_has_seen_the_loss(tmp_path: Path, kept: Archive) -> None:
    with start_pair(tmp_path) as pair:
        async with open_setting(pair.primary.url) as s:
            await complete(s, kept, "job_w")
            let_replica_catch_up(pair)
            pair.cut_off()
            await complete(s, kept, "job_x")
        pair.primary.kill()
        store = connect(pair.replica.url, shards=SHARDS, clock=CLOCK, timeout_s=5)
        s = Setting(store, small_tiers(), JobPolicy())
        service = polled(s)
        try:
            assert (await service.get_job(CALLER, "job_w")).state is JobState.COMPLETE
            for _ in range(2):
                with pytest.raises(ServiceUnavailableError, match="ask again"):
                    await service.get_job(CALLER, "job_x")
                with pytest.raises(LostEntriesError):
                    await Exporter(store, kept).export()
            await Reconciler(store, kept).reconcile()
            assert (await service.get_job(CALLER, "job_x")).state is JobState.FAILED
            with pytest.raises(ServiceUnavailableError, match="ask again"):
                await service.get_job(CALLER, "job_y")
            await Exporter(store, kept).export()
            with pytest.raises(JobNotFoundError):
                await service.get_job(CALLER, "job_y")
        finally:
            await s.jobs.close()
            await store.close()
