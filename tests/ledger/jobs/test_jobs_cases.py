"""The directed cases of jobs and lanes on the real scripts."""

from collections.abc import Awaitable, Callable

import pytest

from serve_app.ledger.jobs.records import JobPolicy
from serve_app.local.embedded_redis import LocalRedis
from tests.ledger.jobs.jobs_cases import CAPPED_CASES, JOBS_CASES
from tests.store.setting import Setting, open_setting

pytestmark = pytest.mark.redis
Case = Callable[[Setting], Awaitable[None]]


@pytest.mark.parametrize("case", JOBS_CASES, ids=lambda case: case.__name__)
async def test_case(setting: Setting, case: Case) -> None:
    await case(setting)


@pytest.mark.parametrize("case", CAPPED_CASES, ids=lambda case: case.__name__)
async def test_case_with_cap(redis_server: LocalRedis, case: Case) -> None:
    async with open_setting(redis_server.url, policy=JobPolicy(owner_in_flight=2)) as setting:
        await case(setting)
