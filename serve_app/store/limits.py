"""Request rates (GCRA) and requests in flight, per owner.

Invariant: while the cache role is unavailable, each process allows its share of the rate, so the
limit fails open but bounded.
"""

import math
import time
from dataclasses import dataclass, field

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.tiers import Tier
from serve_app.store.away import Away
from serve_app.store.client import Store

WINDOW_S = 60
JOB_POLLS_PER_S = 1
JOB_POLL_BURST = 5
FAILED_AUTH_PER_MINUTE = 30
SLOT_TTL_S = 60.0
LOCAL_BUCKETS = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request may pass, and what its ``RateLimit`` headers say; times in seconds."""

    allowed: bool
    kind: str
    limit: int
    window_s: int
    remaining: int
    retry_after_s: int
    reset_s: int


@dataclass(slots=True)
class LocalBuckets:
    """Token buckets of this process, for when the shared ones are unavailable."""

    levels: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, key: str, per_s: float, burst: float) -> tuple[bool, float]:
        """Take a token if there is one; return whether there was, and the level afterwards."""
        now = time.monotonic()
        level, at = self.levels.get(key, (burst, now))
        level = min(burst, level + (now - at) * per_s)
        is_allowed = level >= 1
        if is_allowed:
            level -= 1
        if len(self.levels) >= LOCAL_BUCKETS:
            self.levels.clear()
        self.levels[key] = (level, now)
        return is_allowed, level


class Limits:
    """Decides whether a request may pass."""

    def __init__(self, store: Store, *, replicas: int = 1) -> None:
        """Use the cache role; ``replicas`` share the rate while it is unavailable."""
        self._store = store
        self._replicas = max(1, replicas)
        self._local = LocalBuckets()
        self._away = Away()

    async def check(self, owner: str, kind: str, tier: Tier) -> Decision:
        """Count one request of class ``kind`` (read, compute, poll) against the tier's rate."""
        return await self._decide(kind, f"rl:{kind}:{owner}", tier.rate[kind])

    async def check_job_poll(self, owner: str, job_id: str) -> Decision:
        """Count one poll of one job: one a second, five at once."""
        return await self._decide(
            "job", f"rl:job:{owner}:{job_id}", JOB_POLLS_PER_S, 1, JOB_POLL_BURST
        )

    async def check_failed_auth(self, address: str) -> Decision:
        """Count one failed authentication from an address."""
        return await self._decide("auth", f"rl:auth:{address}", FAILED_AUTH_PER_MINUTE)

    async def _decide(
        self, kind: str, key: str, limit: int, window_s: int = WINDOW_S, burst: int | None = None
    ) -> Decision:
        depth = burst or limit
        if self._away.is_over:
            try:
                allowed, remaining, retry_ms, reset_ms = await self._store.run(
                    "gcra", [key], [limit, window_s * 1000, depth]
                )
            except ServiceUnavailableError:
                self._away.mark()
            else:
                return Decision(
                    allowed=bool(allowed),
                    kind=kind,
                    limit=depth,
                    window_s=window_s if burst is None else window_s * burst,
                    remaining=remaining,
                    retry_after_s=math.ceil(retry_ms / 1000),
                    reset_s=math.ceil(reset_ms / 1000),
                )
        per_s = limit / window_s / self._replicas
        share = max(1.0, depth / self._replicas)
        is_allowed, level = self._local.take(key, per_s, share)
        return Decision(
            allowed=is_allowed,
            kind=kind,
            limit=depth,
            window_s=window_s if burst is None else window_s * burst,
            remaining=int(level),
            retry_after_s=0 if is_allowed else math.ceil((1 - level) / per_s),
            reset_s=math.ceil((share - level) / per_s),
        )

    async def acquire_slot(
        self, owner: str, kind: str, limit: int, request_id: str, ttl_s: float = SLOT_TTL_S
    ) -> bool:
        """Take one of ``limit`` slots; also True when the cache role is unavailable."""
        try:
            return bool(
                await self._store.run(
                    "slot", [f"slot:{kind}:{owner}"], [request_id, limit, int(ttl_s * 1000)]
                )
            )
        except ServiceUnavailableError:
            return True

    async def release_slot(self, owner: str, kind: str, request_id: str) -> None:
        """Give a slot back; one that cannot be given back lapses by itself."""
        try:
            await self._store.command("ZREM", f"slot:{kind}:{owner}", request_id)
        except ServiceUnavailableError:
            return
