"""A poll of a job that a failover took is told to come again, until it is brought back."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from serve_app.domain.errors import JobNotFoundError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.ledger.archive.export import Exporter, LostEntriesError
from serve_app.ledger.archive.reconcile import Reconciler
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.jobs.types import JobState, NewJob
from serve_app.services.jobs.submit import AnalysisService
from tests.ledger.export_cases import archive, copy_of, fail_over
from tests.store.setting import ACCOUNT, Setting, some_work

pytestmark = pytest.mark.redis


@pytest.fixture
def kept() -> Iterator[Archive]:
    with archive() as kept:
        yield kept


async def test_it_is_503_until_the_ledger_is_reconciled(setting: Setting, kept: Archive) -> None:
    s, nothing = setting, cast("Any", None)
    service = AnalysisService(s.jobs, nothing, nothing, nothing)
    caller = Caller("key_1", ACCOUNT, ACCOUNT, "basic", frozenset(), is_test=False)
    await s.ledger.balance(ACCOUNT, "basic")
    await Exporter(s.store, kept).export()
    copy = await copy_of(s)
    await s.jobs.submit(NewJob("job_x", ACCOUNT, "basic", "analysis", some_work(), 10))
    claim = await s.jobs.claim("w1")
    assert claim is not None
    assert await s.jobs.finish(claim, b"{}")
    await Exporter(s.store, kept).export()
    await fail_over(s, copy)
    with pytest.raises(LostEntriesError):
        await Exporter(s.store, kept).export()
    with pytest.raises(ServiceUnavailableError, match="ask again") as refused:
        await service.get_job(caller, "job_x")
    assert refused.value.retry_after_s == 60
    await Reconciler(s.store, kept).reconcile()
    assert (await service.get_job(caller, "job_x")).state is JobState.FAILED
    with pytest.raises(JobNotFoundError):
        await service.get_job(caller, "job_y")
