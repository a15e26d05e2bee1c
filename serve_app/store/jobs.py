"""Jobs in Redis: submit, claim, run, end. The record is the truth, the lanes are a hint.

Invariant: a job ends once, and its hold ends in the same script; whoever holds an older fence
changes nothing.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.domain.errors import IdempotencyMismatchError, ServiceUnavailableError
from serve_app.domain.jobs import (
    JOB_HOLD_PREFIX,
    Claim,
    JobFailure,
    JobRecord,
    JobState,
    JobStats,
    NewJob,
    Recovery,
)
from serve_app.domain.tiers import Tiers
from serve_app.store.bus import Bus
from serve_app.store.client import Store
from serve_app.store.keys import JOB_EVENTS, split_member
from serve_app.store.lanes import Lanes
from serve_app.store.ledger import check_id, from_ms, no_funds, parse_balance

CRASH_MESSAGE = "the analysis crashed repeatedly on this input; nothing was charged"
QUEUE_MESSAGE = "the job waited too long for a free worker; nothing was charged; submit it again"
RUN_MESSAGE = "the analysis took longer than allowed; nothing was charged"
OUTBOX_GRACE_MS = 2_000
RECHECK_MS = 300_000
BLOCK_S = 0.5
WAIT_RECHECK_S = 5.0
SWEEP_BATCH = 200
FIRST_BACKOFF_MS = 1_000


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """Times and limits of all jobs."""

    lease_s: float = 30.0
    max_attempts: int = 3
    queue_limit_s: float = 900.0
    run_limit_s: float = 300.0
    max_wait_s: float = 120.0
    owner_in_flight: int = 64
    first_backoff_ms: int = FIRST_BACKOFF_MS


class Jobs:
    """The jobs of all accounts."""

    def __init__(
        self,
        store: Store,
        tiers: Tiers,
        policy: JobPolicy | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._store = store
        self._tiers = tiers
        self._policy = policy or JobPolicy()
        self._lanes = Lanes(
            store,
            tiers,
            lease_s=self._policy.lease_s,
            owner_in_flight=self._policy.owner_in_flight,
        )
        self._bus = bus or Bus(store)
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._bus.listen(JOB_EVENTS, self._on_event)

    async def submit(self, job: NewJob) -> JobRecord:
        """Hold the credits and take the job in, in one step; the same call again changes nothing.

        Raises:
            InsufficientCreditsError: Not covered; there is no job.
            IdempotencyMismatchError: The id exists with another request.
            ServiceUnavailableError: Too much work waits, or the ledger is away; not charged.
        """
        account, job_id = check_id(job.account), check_id(job.job_id)
        tier = self._tiers[job.tier]
        await self._admit(tier.name, account)
        hold_id = JOB_HOLD_PREFIX + job_id
        keys = self._store.keys
        ttl_s = self._policy.max_attempts * (self._policy.queue_limit_s + self._policy.run_limit_s)
        status, packed = await self._store.run(
            "job_submit",
            [
                *keys.money(account, hold_id),
                *keys.funding(account),
                *(keys.job(account, job_id), keys.job_index(keys.tag(account), "open")),
            ],
            [
                *(account, hold_id, job.cost, int(ttl_s * 1000), job.fingerprint),
                *(tier.monthly_credits, tier.grace_credits, job_id, tier.name, job.kind),
                *(json.dumps(job.payload), tier.owner_jobs),
                *(tier.asset_lifetime_s * 1000, OUTBOX_GRACE_MS),
            ],
        )
        match status:
            case b"NOFUNDS":
                raise no_funds(job.cost, parse_balance(account, packed))
            case b"MISMATCH":
                raise IdempotencyMismatchError(f"job {job_id} exists with another request")
            case b"BACKLOG":
                raise ServiceUnavailableError(
                    f"{tier.owner_jobs} of your jobs are unfinished; wait for some to end", 30
                )
        if status == b"OK":
            # The job is taken in; should this fail, the sweep puts it in line after a moment.
            with contextlib.suppress(ServiceUnavailableError):
                await self._lanes.put(tier.name, account, job_id)
        record = await self.get(account, job_id)
        if record is None:
            raise ServiceUnavailableError("the job has expired")
        return record

    async def _admit(self, lane: str, account: str) -> None:
        load = await self._lanes.load(lane, account)
        wait_s = load.expected_wait_s()
        if wait_s > self._policy.max_wait_s:
            raise ServiceUnavailableError(
                f"too much work is waiting (about {wait_s:.0f} s); try again later",
                max(1, round(wait_s - self._policy.max_wait_s)),
            )

    async def get(self, account: str, job_id: str) -> JobRecord | None:
        """Read a job of that account; None if it has expired, never existed or is another's.

        Raises:
            ServiceUnavailableError: The ledger is away.
        """
        reply = await self._store.command("HGETALL", self._store.keys.job(account, job_id))
        pairs = (
            reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        )
        return parse_record(job_id, pairs) if pairs else None

    async def wait(self, account: str, job_id: str, timeout_s: float) -> JobRecord | None:
        """Read a job, waiting up to ``timeout_s`` seconds for its end."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        with self._waiting(job_id) as ended:
            is_heard = await self._bus.ready()
            while True:
                ended.clear()
                record = await self.get(account, job_id)
                left = deadline - asyncio.get_running_loop().time()
                if record is None or record.state.is_terminal or left <= 0:
                    return record
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, WAIT_RECHECK_S if is_heard else BLOCK_S)):
                        await ended.wait()

    @contextlib.contextmanager
    def _waiting(self, job_id: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiters.setdefault(job_id, set()).add(event)
        try:
            yield event
        finally:
            self._waiters[job_id].discard(event)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    def _on_event(self, job_id: str | None) -> None:
        groups = self._waiters.values() if job_id is None else [self._waiters.get(job_id, set())]
        for events in groups:
            for event in events:
                event.set()

    async def claim(self, worker_id: str, wait_s: float = 0.0) -> Claim | None:
        """Take and start the next job, waiting up to ``wait_s`` seconds for one.

        Raises:
            ServiceUnavailableError: The ledger is away.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            ticket = await self._lanes.claim(worker_id)
            if ticket is not None:
                claim = await self._start(ticket.account, ticket.job_id, worker_id, ticket.token)
                if claim is not None:
                    return claim
                await self._lanes.done(ticket.job_id, ticket.token, was_served=False)
                continue
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            await self._lanes.wait_for_work(max(0.01, min(left, BLOCK_S)))

    async def _start(self, account: str, job_id: str, worker_id: str, token: str) -> Claim | None:
        keys = self._store.keys
        reply = await self._store.run(
            "job_start",
            [keys.job(account, job_id), keys.job_index(keys.tag(account), "open")],
            [account, job_id, worker_id, int(self._policy.lease_s * 1000)],
        )
        if reply[0] != b"OK":
            return None
        _, attempts, fence, tier, kind, payload, cost = reply
        return Claim(
            job_id=job_id,
            account=account,
            tier=tier.decode(),
            kind=kind.decode(),
            payload=json.loads(payload),
            cost=int(cost),
            attempt=attempts,
            fence=fence,
            worker_id=worker_id,
            token=token,
        )

    async def heartbeat(self, claim: Claim, progress: float, stage: str) -> bool:
        """Keep the lease; False: stop, the job is another's, has ended, or ran too long."""
        keys = self._store.keys
        return bool(
            await self._store.run(
                "job_heartbeat",
                [
                    keys.job(claim.account, claim.job_id),
                    keys.job_index(keys.tag(claim.account), "open"),
                ],
                [
                    *(claim.account, claim.job_id, claim.fence, int(self._policy.lease_s * 1000)),
                    *(f"{progress:.4f}", stage, int(self._policy.run_limit_s * 1000)),
                ],
            )
        )

    async def finish(self, claim: Claim, result: bytes, final_cost: int | None = None) -> bool:
        """Complete the job: result, state and charge in one step; False if the claim was lost."""
        final = -1 if final_cost is None else final_cost
        is_done = await self._store.run(
            "job_finish",
            self._end_keys(claim.account, claim.job_id),
            [claim.account, claim.job_id, claim.fence, result, final],
        )
        await self._leave(claim)
        return bool(is_done)

    async def fail(self, claim: Claim, code: str, message: str, retryable: bool = False) -> None:
        """End this attempt: queue the job again if that may help, else fail and refund it."""
        ceiling = self._policy.first_backoff_ms * 2 ** (claim.attempt - 1)
        delay_ms = random.randint(0, ceiling)  # noqa: S311 - jitter, not a secret
        answer = await self._store.run(
            "job_fail",
            self._end_keys(claim.account, claim.job_id),
            [
                *(claim.account, claim.job_id, claim.fence, code, message, int(retryable)),
                *(delay_ms, self._policy.max_attempts),
            ],
        )
        await self._leave(claim)
        if answer == b"RETRY":
            with contextlib.suppress(ServiceUnavailableError):
                await self._lanes.put(claim.tier, claim.account, claim.job_id, delay_ms)

    async def _leave(self, claim: Claim) -> None:
        with contextlib.suppress(ServiceUnavailableError):
            await self._lanes.done(claim.job_id, claim.token, was_served=True)

    def _end_keys(self, account: str, job_id: str) -> list[str]:
        keys = self._store.keys
        tag = keys.tag(account)
        return [
            *keys.money(account, JOB_HOLD_PREFIX + job_id),
            keys.job(account, job_id),
            *(keys.job_index(tag, "open"), keys.job_index(tag, "dead")),
            *(keys.webhook(account), keys.webhook_index(tag, "due")),
        ]

    async def release(self, worker_id: str) -> int:
        """Give back at once whatever a worker that is known to be dead had claimed."""
        held = await self._lanes.of_worker(worker_id)
        words = [await self._check(*job, dead_worker=worker_id) for job in held]
        return len(words) - words.count("WAIT")

    async def recover(self, share_ms: int = 0) -> Recovery:
        """Look at every unfinished job whose time has come; call it every second.

        Args:
            share_ms: With many callers: do nothing if another one swept within this time.
        """
        if share_ms and not await self._lanes.may_sweep(share_ms):
            return Recovery()
        keys = self._store.keys
        now_ms = time_ms(await self._store.command("TIME"))
        due = await self._store.batch(
            [
                (
                    *("ZRANGEBYSCORE", keys.job_index(keys.shard_tag(shard), "open")),
                    *("-inf", now_ms, "LIMIT", 0, SWEEP_BATCH),
                )
                for shard in range(keys.shards)
            ]
        )
        unclaimed = await self._lanes.expired()
        words = [await self._check(*job, is_unclaimed=True) for job in unclaimed]
        for account, job_id in (split_member(raw) for members in due for raw in members):
            if (account, job_id) not in unclaimed:
                words.append(await self._check(account, job_id))
        return Recovery(
            requeued=words.count("REQUEUED"),
            failed=words.count("FAILED"),
            enqueued=words.count("ENQUEUE"),
        )

    async def _check(
        self, account: str, job_id: str, *, dead_worker: str = "", is_unclaimed: bool = False
    ) -> str:
        policy = self._policy
        word, *place = await self._store.run(
            "job_check",
            self._end_keys(account, job_id),
            [
                *(account, job_id, dead_worker, policy.max_attempts),
                *(int(policy.queue_limit_s * 1000), int(policy.run_limit_s * 1000), RECHECK_MS),
                *(CRASH_MESSAGE, QUEUE_MESSAGE, RUN_MESSAGE),
            ],
        )
        if place:
            take = is_unclaimed or bool(dead_worker) or word == b"REQUEUED"
            await self._lanes.put(place[0].decode(), account, job_id, int(place[1]), take=take)
        elif word != b"WAIT":
            await self._lanes.drop(job_id)
        return str(word.decode())

    async def stats(self) -> JobStats:
        """Give depth, waits and service rate of the lanes."""
        return await self._lanes.stats()

    async def close(self) -> None:
        """Stop listening for events."""
        await self._bus.close()


def time_ms(reply: tuple[int, int] | list[bytes]) -> int:
    """Read an answer to TIME as Unix milliseconds."""
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


def parse_record(job_id: str, raw: dict[bytes, bytes]) -> JobRecord:
    """Read the hash that ``lua/lib/jobs.lua`` describes."""
    code = raw.get(b"code")
    finished = raw.get(b"finished")
    return JobRecord(
        job_id=job_id,
        account=raw[b"acct"].decode(),
        tier=raw[b"tier"].decode(),
        kind=raw[b"kind"].decode(),
        state=JobState(raw[b"state"].decode()),
        progress=float(raw[b"progress"]),
        stage=raw[b"stage"].decode(),
        attempts=int(raw[b"attempts"]),
        cost=int(raw[b"cost"]),
        credits_used=int(raw[b"used"]),
        payload=json.loads(raw[b"payload"]),
        error=JobFailure(code.decode(), raw[b"message"].decode()) if code is not None else None,
        created_at=from_ms(int(raw[b"created"])),
        finished_at=from_ms(int(finished)) if finished is not None else None,
        result=raw.get(b"result"),
    )
