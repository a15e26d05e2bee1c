"""Limits on calls to identification services: their cost in a month, and their total duration."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from serve_app.domain.identification import SpendCap
from serve_app.domain.providers import (
    ProviderSkippedError,
    ProviderUnavailableError,
    RateLimit,
    RateLimiter,
)
from serve_app.providers.web.http_client import ProviderClient

T = TypeVar("T")


class MonthlyCap:
    """Counts each service's calls in a UTC month within this process; see `SpendCap`."""

    def __init__(
        self, most_calls: int, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._most_calls = most_calls
        self._clock = clock
        self._month = ""
        self._n_calls: dict[str, int] = {}

    async def take(self, provider: str) -> bool:
        """See `SpendCap`."""
        month = f"{self._clock():%Y-%m}"
        if month != self._month:
            self._month, self._n_calls = month, {}
        booked = self._n_calls.get(provider, 0)
        if booked >= self._most_calls:
            return False
        self._n_calls[provider] = booked + 1
        return True


class CappedLimiter:
    """A rate limiter that also books the cost of each turn, just before the call is made.

    A client asks for its turn after its circuit breaker let the call pass, so a call that is not
    made costs nothing.
    """

    def __init__(self, limiter: RateLimiter, cap: SpendCap) -> None:
        self._limiter = limiter
        self._cap = cap

    async def acquire(self, provider: str, limit: RateLimit, max_wait_s: float) -> bool:
        """See `RateLimiter`.

        Raises:
            ProviderSkippedError: No call is left in this month.
        """
        if not await self._limiter.acquire(provider, limit, max_wait_s):
            return False
        if not await self._cap.take(provider):
            raise ProviderSkippedError(provider, "the month's calls are used up")
        return True


async def within(client: ProviderClient, timeout_s: float, call: Awaitable[T]) -> T:
    """Await a call for at most ``timeout_s``; being too slow counts as a failure of the service.

    The client's own time-outs apply to single reads, so a trickling answer would pass them.

    Raises:
        ProviderUnavailableError: The service is too slow.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError as error:
        client.breaker.fail()
        raise ProviderUnavailableError(client.name, "too slow") from error
