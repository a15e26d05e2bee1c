"""What services need of the store, so that they run in tests without Redis."""

from collections.abc import Mapping
from typing import Protocol

from serve_app.domain.credits import Balance, HitCharge, Payer
from serve_app.domain.jobs import Claim, JobRecord, JobStats, NewJob, Recovery
from serve_app.domain.keys import Caller
from serve_app.domain.payments import TopupStatus
from serve_app.domain.tiers import Tier
from serve_app.domain.traffic import Decision, IdempotencyState
from serve_app.domain.webhooks import Webhook


class AccountsPort(Protocol):
    """Who is calling."""

    async def authenticate(self, key: str) -> Caller | None:
        """Tell whom a key speaks for; None if it is no valid key."""
        ...


class LedgerPort(Protocol):
    """Credits; every call is idempotent on its id."""

    async def reserve(
        self, payer: Payer, hold_id: str, cost: int, ttl_s: float = ..., fingerprint: str = ""
    ) -> Balance:
        """Hold credits."""
        ...

    async def commit(self, account: str, hold_id: str, final_cost: int | None = None) -> Balance:
        """Charge a hold."""
        ...

    async def void(self, account: str, hold_id: str) -> Balance:
        """Give a hold back."""
        ...

    async def count_hit(
        self, account: str, tier: str, hits: int = 1, hit_id: str | None = None
    ) -> HitCharge:
        """Count cache hits against the monthly allowance."""
        ...

    async def balance(self, account: str, tier: str | None = None) -> Balance:
        """Read an account."""
        ...


class TopupStatusPort(Protocol):
    """Automatic top-up as its owner sees it."""

    async def status(self, account: str) -> TopupStatus | None:
        """Give settings and state; None if it was never set up."""
        ...


class JobsPort(Protocol):
    """Jobs as the API sees them."""

    async def submit(self, job: NewJob) -> JobRecord:
        """Hold the credits and take the job in."""
        ...

    async def get(self, account: str, job_id: str) -> JobRecord | None:
        """Read a job of that account."""
        ...

    async def withdraw(self, account: str, job_id: str) -> bool:
        """Fail and refund a job whose id nobody was told; False if it is complete."""
        ...

    async def wait(self, account: str, job_id: str, timeout_s: float) -> JobRecord | None:
        """Read a job, waiting for its end."""
        ...

    async def stats(self) -> JobStats:
        """Read depth and waits of the lanes."""
        ...


class JobQueuePort(Protocol):
    """Jobs as a worker sees them."""

    async def claim(self, worker_id: str, wait_s: float = 0.0) -> Claim | None:
        """Take and start the next job."""
        ...

    async def heartbeat(self, claim: Claim, progress: float, stage: str) -> bool:
        """Keep the lease; False means stop."""
        ...

    async def finish(self, claim: Claim, result: bytes, final_cost: int | None = None) -> bool:
        """Complete the job."""
        ...

    async def fail(self, claim: Claim, code: str, message: str, retryable: bool = False) -> bool:
        """End the attempt as a failure; False if the claim was lost."""
        ...

    async def release(self, worker_id: str) -> int:
        """Give back what a dead worker had claimed."""
        ...

    async def recover(self, share_ms: int = 0) -> Recovery:
        """Look after jobs whose worker or lane place was lost."""
        ...


class LimitsPort(Protocol):
    """Request rates and requests in flight."""

    async def check(self, owner: str, kind: str, tier: Tier) -> Decision:
        """Count one request of a class."""
        ...

    async def check_job_poll(self, owner: str, job_id: str) -> Decision:
        """Count one poll of one job."""
        ...

    async def check_failed_auth(self, address: str, *, count: bool) -> Decision:
        """Look at, or count, failed authentications of an address."""
        ...

    async def acquire_slot(
        self, owner: str, kind: str, limit: int, request_id: str, ttl_s: float = ...
    ) -> bool:
        """Take one of an owner's slots."""
        ...

    async def release_slot(self, owner: str, kind: str, request_id: str) -> None:
        """Give the slot back."""
        ...


class CachePort(Protocol):
    """A cache that may vanish at any time."""

    def is_away(self) -> bool:
        """Tell whether it has just failed, so that a miss may be none."""
        ...

    async def get(self, space: str, key: str) -> bytes | None:
        """Give what was stored; None for a miss."""
        ...

    async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
        """Store a value."""
        ...


class IdempotencyPort(Protocol):
    """Answers remembered under an ``Idempotency-Key``."""

    async def begin(self, owner: str, key: str, fingerprint: str) -> IdempotencyState:
        """Find out what is known about a key, and take it if nothing is."""
        ...

    async def finish(
        self, owner: str, key: str, status: int, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Remember the answer."""
        ...

    async def abandon(self, owner: str, key: str) -> None:
        """Forget a request that left nothing behind, so that it may be tried again."""
        ...


class WebhooksPort(Protocol):
    """Where accounts want to be told that a job has ended."""

    async def register(self, account: str, url: str) -> Webhook:
        """Set the account's URL."""
        ...

    async def get(self, account: str) -> Webhook | None:
        """Give the registration of an account."""
        ...

    async def remove(self, account: str) -> None:
        """Forget the registration."""
        ...
