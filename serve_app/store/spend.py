"""Limits for all replicas together on calls to a provider: per window, and billed ones per month.

Invariant: while Redis is unavailable each process counts for itself: limits apply, but per process.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from serve_app.domain import identification
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.providers import RateLimit, RateLimiter
from serve_app.store.away import Away
from serve_app.store.client import Store

MONTH_KEPT_MS = 40 * 24 * 3600 * 1000


class SharedRateLimiter:
    """Rolling windows over all processes, on the cache role; see `RateLimiter`."""

    def __init__(
        self, store: Store, fallback: RateLimiter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Use ``store``, and ``fallback`` while it is unavailable."""
        self._store = store
        self._fallback = fallback
        self._away = Away(clock)

    async def acquire(self, provider: str, limit: RateLimit, max_wait_s: float) -> bool:
        """Take the next free turn and wait for it; see `RateLimiter`."""
        if self._away.is_over:
            try:
                wait_ms = await self._store.run(
                    "turn",
                    [f"turn:{provider}"],
                    [limit.n_calls, math.ceil(limit.window_s * 1000), int(max_wait_s * 1000)],
                )
            except ServiceUnavailableError:
                self._away.mark()
            else:
                if wait_ms > 0:
                    await asyncio.sleep(wait_ms / 1000)
                return bool(wait_ms >= 0)
        return await self._fallback.acquire(provider, limit, max_wait_s)


class SpendCap:
    """Counts each service's billed calls of the UTC month over all processes.

    The count is money, so it belongs on the ledger role, which neither forgets nor evicts.
    """

    def __init__(
        self,
        store: Store,
        most_calls: int,
        fallback: identification.SpendCap,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Allow ``most_calls`` per service and month; ``fallback`` counts if ``store`` fails."""
        self._store = store
        self._most_calls = most_calls
        self._fallback = fallback
        self._clock = clock

    async def take(self, provider: str) -> bool:
        """Count one call; see `serve_app.domain.identification.SpendCap`."""
        key = f"spend:{provider}:{self._clock():%Y-%m}"
        try:
            return bool(await self._store.run("spend", [key], [self._most_calls, MONTH_KEPT_MS]))
        except ServiceUnavailableError:
            return await self._fallback.take(provider)
