"""Webhooks: the addresses where accounts want notice that a job has ended, and the delivery.

Invariant: the script that ends a job also records its delivery, so none is forgotten; a delivery
may arrive twice, with the same ``webhook-id``.
"""

import asyncio
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.webhooks import RETRY_DELAYS_S, Webhook, new_salt, secret_of, sign
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import JobRecord
from serve_app.store.client import Store
from serve_app.store.keys import split_member

DELIVERY_LEASE_MS = 60_000
AT_ONCE, OF_A_SHARD = 256, 20
"""Messages being sent at once, in all and per shard; none waits for an address that hangs."""

ROUND_S = 1.0
"""How long a round waits for what it sends; the rest goes on during the following rounds."""

SEND_LIMIT_S = 20.0
GONE = 410

logger = logging.getLogger(__name__)

Sender = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]


class Webhooks:
    """Registrations, and the outbox of deliveries."""

    def __init__(
        self, store: Store, jobs: Jobs, send: Sender | None = None, *, pepper: str
    ) -> None:
        """Use the ledger role.

        Args:
            store: The ledger role.
            jobs: Where the jobs that have ended are read.
            send: Posts a body with headers to a URL and returns the status; guards against private
                addresses. Needed only for ``deliver_due``.
            pepper: The installation's secret; signing secrets derive from it and are not stored.
        """
        self._pepper = pepper
        self._store = store
        self._jobs = jobs
        self._send = send
        self._sending: dict[asyncio.Task[bool], str] = {}

    async def register(self, account: str, url: str) -> Webhook:
        """Set the account's URL; a secret that exists already stays the same."""
        key = self._store.keys.webhook(account)
        if await self.get(account) is None:
            await self._store.command("HSETNX", key, "salt", new_salt())
        await self._store.command("HSET", key, "url", url)
        found = await self.get(account)
        if found is None:
            raise ServiceUnavailableError("the webhook was removed at the same moment; try again")
        return found

    async def get(self, account: str) -> Webhook | None:
        """Return the registration of an account."""
        # Releases before 0.2 stored the secret itself; it is kept until the webhook is removed.
        url, salt, secret = await self._store.command(
            "HMGET", self._store.keys.webhook(account), "url", "salt", "secret"
        )
        if not url or not (salt or secret):
            return None
        if secret:
            return Webhook(url.decode(), secret.decode())
        return Webhook(url.decode(), secret_of(self._pepper, account, salt.decode()))

    async def remove(self, account: str) -> None:
        """Forget the registration; what is still to be delivered is dropped when its turn comes."""
        await self._store.command("DEL", self._store.keys.webhook(account))

    async def deliver_due(self) -> int:
        """Begin every delivery that is due; return how many have arrived since the last round.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        keys = self._store.keys
        tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
        waiting = await self._store.ask([keys.webhook_index(tag, "due") for tag in tags], "ZCARD")
        due = [tag for tag in tags if keys.webhook_index(tag, "due") in waiting]
        random.shuffle(due)  # so that a hanging address does not always come first
        busy = Counter(self._sending.values())
        for tag in due:
            most = min(OF_A_SHARD - busy[tag], AT_ONCE - len(self._sending))
            if most <= 0:
                continue
            index = [keys.webhook_index(tag, "due"), keys.webhook_index(tag, "tries")]
            taken = await self._store.run("webhook_take", index, [DELIVERY_LEASE_MS, most])
            for member, attempt in zip(taken[::2], taken[1::2], strict=True):
                self._sending[asyncio.create_task(self._attempt(index, member, attempt))] = tag
        if not self._sending:
            return 0
        ended, _ = await asyncio.wait(self._sending, timeout=ROUND_S)
        for task in ended:
            self._sending.pop(task, None)
        ends = await asyncio.gather(*ended, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return ends.count(True)

    async def _attempt(self, index: list[str], member: bytes, attempt: int) -> bool:
        account, job_id = split_member(member)
        delay_s = await self._deliver(account, job_id, attempt)
        delay_ms = -1 if delay_s is None else delay_s * 1000
        await self._store.run("webhook_after", index, [member, max(-1, delay_ms)])
        return delay_s is None

    async def _deliver(self, account: str, job_id: str, attempt: int) -> int | None:
        """Try once; return None when done, seconds until the next attempt, or -1 to give up."""
        if self._send is None:
            raise RuntimeError("no sender was given")
        hook = await self.get(account)
        job = await self._jobs.get(account, job_id)
        # Nobody knows the id of a job that computes a catalog track.
        if hook is None or job is None or job.work.is_for_lookup:
            return -1
        body, message_id, now_s = message_body(job), f"msg_{job_id}", int(time.time())
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": sign(hook.secret, message_id, now_s, body),
        }
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                status = await self._send(hook.url, headers, body)
        except OSError as error:
            logger.info("webhook for %s, attempt %d: %r", job_id, attempt, error)
            status = 0
        except Exception as error:  # noqa: BLE001  one address must not delay others
            logger.warning("webhook for %s, attempt %d: %r", job_id, attempt, error)
            status = 0
        if 200 <= status < 300:
            return None
        if status == GONE or attempt > len(RETRY_DELAYS_S):
            logger.warning("webhook for %s given up after %d attempts", job_id, attempt)
            return -1
        return RETRY_DELAYS_S[attempt - 1]


def message_body(job: JobRecord) -> bytes:
    """Write the message, without the result, which is read with ``GET /v1/jobs/{id}``."""
    ended = job.finished_at or datetime.now(UTC)
    return json.dumps(
        {
            "type": f"job.{job.state.value}",
            "timestamp": ended.isoformat().replace("+00:00", "Z"),
            "data": {
                "job_id": job.job_id,
                "status": job.state.value,
                "error": None if job.error is None else job.error.code,
            },
        },
        separators=(",", ":"),
    ).encode()
