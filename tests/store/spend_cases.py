"""Directed cases of what replicas share when they call providers: turns and billed calls."""

import time
from datetime import UTC, datetime

from serve_app.domain.providers import RateLimit
from serve_app.store.spend import MONTH_KEPT_MS, SharedRateLimiter, SpendCap
from tests.store.setting import Setting

LIMIT = RateLimit(2, 60)


class Refusing:
    """A fallback that must not be used."""

    async def acquire(self, provider: str, limit: RateLimit, max_wait_s: float) -> bool:
        raise AssertionError

    async def take(self, provider: str) -> bool:
        raise AssertionError


async def turns_are_shared(s: Setting) -> None:
    one, two = (SharedRateLimiter(s.store, Refusing()) for _ in range(2))
    assert await one.acquire("deezer", LIMIT, 0)
    assert await two.acquire("deezer", LIMIT, 0)
    assert not await one.acquire("deezer", LIMIT, 59)
    assert await two.acquire("itunes", LIMIT, 0)
    await s.after(60_000)
    assert await two.acquire("deezer", LIMIT, 0)
    quick = RateLimit(1, 2.0)
    assert await one.acquire("isrc", quick, 0)
    began = time.monotonic()
    assert await two.acquire("isrc", quick, 2.0)
    assert time.monotonic() - began >= 1.0


async def turns_are_booked_ahead_as_far_as_the_caller_waits(s: Setting) -> None:
    async def book(longest_wait_ms: int) -> int:
        return int(await s.store.run("turn", ["turn:x"], [2, 5_000, longest_wait_ms]))

    assert await book(0) == 0
    assert 4_000 < await s.store.command("PTTL", "turn:x") <= 5_000
    await s.after(1_000)
    assert [await book(0), await book(3_999), await book(4_000)] == [0, -1, 4_000]
    assert 8_000 < await s.store.command("PTTL", "turn:x") <= 9_000
    assert [await book(4_999), await book(5_000)] == [-1, 5_000]
    assert await s.store.command("LLEN", "turn:x") == 2
    await s.after(8_999)
    assert [await book(0), await book(1)] == [-1, 1]
    await s.after(60_000)
    assert [await book(0), await book(0), await book(0)] == [0, 0, -1]
    await s.after(-5_000)
    assert await book(0) == -1
    await s.after(-1)  # nobody books so far ahead: the clock was set back
    assert [await book(0), await book(0), await book(0)] == [0, 0, -1]


async def billed_calls_are_counted_per_month(s: Setting) -> None:
    now = [datetime(2026, 11, 30, 23, 59, tzinfo=UTC)]
    one, two = (SpendCap(s.store, 2, Refusing(), clock=lambda: now[0]) for _ in range(2))
    assert await one.take("audd")
    assert await two.take("audd")
    assert not await one.take("audd")
    assert await two.take("acrcloud")
    assert await s.store.command("GET", "spend:audd:2026-11") == b"2"
    ttl_ms = await s.store.command("PTTL", "spend:audd:2026-11")
    assert MONTH_KEPT_MS - 60_000 < ttl_ms <= MONTH_KEPT_MS
    now[0] = datetime(2026, 12, 1, tzinfo=UTC)
    assert await two.take("audd")


SPEND_CASES = (
    turns_are_shared,
    turns_are_booked_ahead_as_far_as_the_caller_waits,
    billed_calls_are_counted_per_month,
)
