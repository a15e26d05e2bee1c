"""Shared turns and billed calls, and what happens while Redis is unavailable."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serve_app.domain.providers import RateLimit
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.store.client import connect
from serve_app.store.spend import SharedRateLimiter, SpendCap
from tests.store.setting import Setting
from tests.store.spend_cases import SPEND_CASES

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("case", SPEND_CASES, ids=lambda case: case.__name__)
async def test_case(setting: Setting, case: Callable[[Setting], Awaitable[None]]) -> None:
    await case(setting)


async def test_limits_stay_while_redis_is_away(tmp_path: Path) -> None:
    store = connect(f"unix://{tmp_path}/nobody.sock")
    limiter = SharedRateLimiter(store, LocalRateLimiter())
    limit = RateLimit(2, 60)
    assert [await limiter.acquire("deezer", limit, 0) for _ in range(3)] == [True, True, False]
    cap = SpendCap(store, 9, MonthlyCap(1))
    assert [await cap.take("audd") for _ in range(2)] == [True, False]
    await store.close()


async def test_shared_turns_are_used_again_when_redis_is_back(setting: Setting) -> None:
    now = [0.0]
    limiter = SharedRateLimiter(setting.store, LocalRateLimiter(), clock=lambda: now[0])
    address, setting.store.redis = setting.store.redis, connect("unix:///nobody.sock").redis
    limit = RateLimit(1, 60)
    assert await limiter.acquire("deezer", limit, 0)
    setting.store.redis = address
    assert not await limiter.acquire("deezer", limit, 0)
    now[0] = 1.0
    assert await limiter.acquire("deezer", limit, 0)
    assert await setting.store.command("LLEN", "turn:deezer") == 1
