"""Jobs in Redis: submit, claim, run, end. The record is the truth, the lanes are a hint.

Invariant: a job ends once, and its hold ends in the same script; a worker with an older fence can
change nothing.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator
from typing import Any

from serve_app.domain.credits import GRACE_MS
from serve_app.domain.errors import (
    IdempotencyMismatchError,
    InternalError,
    ServiceUnavailableError,
    UnansweredError,
)
from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs.lanes import Lanes, Standing
from serve_app.ledger.jobs.records import (
    KIND,
    SUMMARY,
    JobPolicy,
    ending_keys,
    new_record,
    parse_record,
    parse_summary,
)
from serve_app.ledger.jobs.sweep import FIRST_LOOK_MS, JobSweep
from serve_app.ledger.jobs.types import (
    JOB_HOLD_PREFIX,
    AnalysisJob,
    Claim,
    JobPosition,
    JobRecord,
    JobSummary,
    NewJob,
    Recovery,
    Stage,
)
from serve_app.ledger.ledger import check_id, no_funds
from serve_app.ledger.packed import parse_balance
from serve_app.store.bus import Bus
from serve_app.store.client import Store
from serve_app.store.keys import FETCHES, JOB_EVENTS

WITHDRAWN_MS = 3_600_000
"""By then, what was sent before the ledger became unavailable has arrived or never will."""

LISTED_MS = 24 * 3600 * 1000
"""A job is listed this much longer than its result is kept, since it may wait and run first."""
WITHDRAWN_MESSAGE = "the request could not be answered; you were not charged, send it again"
BLOCK_S = 0.5
WAIT_RECHECK_S = 5.0


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
        lease_s = self._policy.lease_s
        self._lanes: dict[Stage, Lanes] = {
            "analyse": Lanes(
                store, tiers, lease_s=lease_s, owner_in_flight=self._policy.owner_in_flight
            ),
            "fetch": Lanes(
                *(store, tiers),
                lease_s=lease_s,
                owner_in_flight=self._policy.owner_fetches,
                space=FETCHES,
            ),
        }
        self._sweep = JobSweep(store, self._lanes, self._policy)
        self._bus = bus or Bus(store)
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._returns: set[asyncio.Task[None]] = set()
        self._bus.listen(JOB_EVENTS, self._on_event)

    async def submit(self, job: NewJob) -> JobRecord:
        """Hold the credits and accept the job in one step; the same call again changes nothing.

        Raises:
            InsufficientCreditsError: The credits do not suffice; there is no job.
            IdempotencyMismatchError: The id exists with another request.
            UnansweredError: The ledger became unavailable: the job may have been accepted.
            ServiceUnavailableError: Too much work waits, or the ledger is unavailable; not charged.
        """
        account, job_id = check_id(job.account), check_id(job.job_id)
        tier = self._tiers[job.tier]
        await self._admit(tier.name, account, job.work.stage)
        hold_id = JOB_HOLD_PREFIX + job_id
        keys = self._store.keys
        ttl_s = self._policy.max_attempts * (self._policy.queue_limit_s + self._policy.run_limit_s)
        try:
            status, packed = await self._store.run(
                "job_submit",
                [
                    *keys.money(account, hold_id),
                    *keys.funding(account),
                    *(keys.job(account, job_id), keys.job_index(keys.tag(account), "open")),
                    keys.job_list(account),
                ],
                [
                    *(account, hold_id, job.cost, int(ttl_s * 1000), job.fingerprint),
                    *(tier.monthly_credits, tier.grace_credits, job_id, tier.name, KIND),
                    *(json.dumps(job.work.to_json()), tier.owner_jobs),
                    *(tier.asset_lifetime_s * 1000, FIRST_LOOK_MS, GRACE_MS),
                    *(int(not job.work.is_for_lookup), tier.asset_lifetime_s * 1000 + LISTED_MS),
                ],
            )
        except ServiceUnavailableError as error:
            raise UnansweredError(error.message, error.retry_after_s) from error
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
            # The job is accepted: nothing below may fail. The sweep puts it in line if need be.
            with contextlib.suppress(ServiceUnavailableError):
                await self._lanes[job.work.stage].put(tier.name, account, job_id)
            return new_record(job, tier.name, parse_balance(account, packed))
        record = await self.get(account, job_id)
        if record is None:
            raise ServiceUnavailableError("the job has expired")
        return record

    async def withdraw(self, account: str, job_id: str) -> bool:
        """Fail and refund a job whose id nobody has received, and block the id for later ones.

        Returns:
            False if the job was already complete: it stays complete and charged.

        Raises:
            ServiceUnavailableError: The ledger is unavailable; it is safe to call again.
        """
        answer = await self._store.run(
            "job_withdraw",
            ending_keys(self._store.keys, account, job_id),
            [account, job_id, InternalError.code, WITHDRAWN_MESSAGE, WITHDRAWN_MS],
        )
        return bool(answer != b"COMPLETE")

    async def page(self, account: str, limit: int, before: JobPosition | None) -> list[JobSummary]:
        """Return up to ``limit`` jobs of an account from before a position, newest first.

        Expired ones that it meets leave the list, so that no later call meets them.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        found: list[JobSummary] = []
        key = self._store.keys.job_list(account)
        top = "+inf" if before is None else before.created_ms
        offset = 0
        while len(found) < limit:
            flat = await self._store.command(
                *("ZREVRANGEBYSCORE", key, top, "-inf", "WITHSCORES", "LIMIT", offset, limit)
            )
            places = _positions(flat)
            if not places:
                break
            older = [one for one in places if before is None or one < before]
            rows = list(zip(older, await self._rows(account, older), strict=True))
            found += [parse_summary(place, row) for place, row in rows if row[0]]
            expired = [place.job_id for place, row in rows if not row[0]]
            # At once: who reads the list meanwhile must not find it shorter before where it is.
            offset += len(places) - await self._unlist(key, expired)
        return found[:limit]

    async def _unlist(self, key: str, expired: list[str]) -> int:
        """Take jobs off a list; return how many are off it."""
        if expired:
            with contextlib.suppress(ServiceUnavailableError):  # it may accept no writes
                await self._store.command("ZREM", key, *expired)
                return len(expired)
        return 0

    async def _rows(self, account: str, places: list[JobPosition]) -> list[Any]:
        key = self._store.keys.job
        return await self._store.batch(
            [("HMGET", key(account, place.job_id), *SUMMARY) for place in places]
        )

    async def forget(self, account: str, job_id: str) -> None:
        """Delete the record and the result of a job that has ended."""
        keys = self._store.keys
        await self._store.batch(
            [("DEL", keys.job(account, job_id)), ("ZREM", keys.job_list(account), job_id)]
        )

    async def _admit(self, lane: str, account: str, stage: Stage) -> None:
        load = await self._lanes["analyse"].load(lane, account)
        wait_s = load.expected_wait_s()
        if stage == "fetch":
            wait_s += (await self._lanes["fetch"].load(lane, account)).expected_wait_s()
        if wait_s > self._policy.max_wait_s:
            raise ServiceUnavailableError(
                f"too much work is waiting (about {wait_s:.0f} s); try again later",
                max(1, round(wait_s - self._policy.max_wait_s)),
            )

    async def get(self, account: str, job_id: str) -> JobRecord | None:
        """Read a job of an account; None if it has expired, never existed or is another account's.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        reply = await self._store.command("HGETALL", self._store.keys.job(account, job_id))
        pairs = (
            reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
        )
        return parse_record(job_id, pairs) if b"state" in pairs else None

    async def may_have_lost(self, account: str) -> bool:
        """Return whether a failover lost, or may have lost, jobs of that account's shard.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        keys, tag = self._store.keys, self._store.keys.tag(account)
        names = [keys.shard(tag, name) for name in ("lost", "compared")]
        return bool(await self._store.run("loss_suspected", names))

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

    async def claim(
        self, worker_id: str, wait_s: float = 0.0, stage: Stage = "analyse"
    ) -> Claim | None:
        """Take and start the next job of a stage, waiting up to ``wait_s`` seconds for one.

        If the caller is cancelled meanwhile, a job that was taken for it is given back.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            attempt = asyncio.create_task(self._claim_next(worker_id, stage))
            try:
                claim = await asyncio.shield(attempt)
            except asyncio.CancelledError:
                # The server carries out what was sent: wait for its answer in the caller's place.
                task = asyncio.create_task(self._give_back(attempt))
                self._returns.add(task)
                task.add_done_callback(self._returns.discard)
                raise
            left = deadline - asyncio.get_running_loop().time()
            if claim is not None or left <= 0:
                return claim
            await self._lanes[stage].wait_for_work(max(0.01, min(left, BLOCK_S)))

    async def _claim_next(self, worker_id: str, stage: Stage) -> Claim | None:
        lanes = self._lanes[stage]
        while True:
            ticket = await lanes.claim(worker_id)
            if ticket is None:
                return None
            claim = await self._start(ticket.account, ticket.job_id, worker_id, ticket.token)
            if claim is not None and claim.work.stage == stage:
                return claim
            await lanes.done(ticket.job_id, ticket.token, was_served=False)
            if claim is not None:
                await self.pass_on(claim, claim.work)  # it was in the wrong lane

    async def _give_back(self, attempt: "asyncio.Task[Claim | None]") -> None:
        with contextlib.suppress(ServiceUnavailableError):  # otherwise its lease ends
            claim = await attempt
            if claim is not None:
                await self.give_back(claim)

    async def give_back(self, claim: Claim) -> None:
        """Queue a job again that nobody has begun to work on; the attempt does not count."""
        lanes = self._lanes[claim.work.stage]
        await lanes.done(claim.job_id, claim.token, was_served=False)
        await self.pass_on(claim, claim.work)

    async def _start(self, account: str, job_id: str, worker_id: str, token: str) -> Claim | None:
        keys = self._store.keys
        reply = await self._store.run(
            "job_start",
            [keys.job(account, job_id), keys.job_index(keys.tag(account), "open")],
            [account, job_id, worker_id, int(self._policy.lease_s * 1000)],
        )
        if reply[0] != b"OK":
            return None
        _, attempts, fence, tier, payload, cost = reply
        return Claim(
            job_id=job_id,
            account=account,
            tier=tier.decode(),
            work=AnalysisJob.from_json(json.loads(payload)),
            cost=int(cost),
            attempt=attempts,
            fence=fence,
            token=token,
        )

    async def heartbeat(self, claim: Claim, progress: float, stage: str) -> bool:
        """Renew the lease; False means stop: the job was lost, has ended, or ran too long."""
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
            ending_keys(self._store.keys, claim.account, claim.job_id),
            [claim.account, claim.job_id, claim.fence, result, final],
        )
        await self._leave(claim)
        return bool(is_done)

    async def pass_on(self, claim: Claim, work: AnalysisJob) -> bool:
        """Queue the job for its next stage, with new work; False if the claim was lost.

        The stage that ends here does not count as an attempt.
        """
        keys = self._store.keys
        is_passed = await self._store.run(
            "job_pass",
            [
                keys.job(claim.account, claim.job_id),
                keys.job_index(keys.tag(claim.account), "open"),
            ],
            [
                *(claim.account, claim.job_id, claim.fence),
                *(json.dumps(work.to_json()), FIRST_LOOK_MS),
            ],
        )
        await self._leave(claim)
        if is_passed:
            with contextlib.suppress(ServiceUnavailableError):
                await self._lanes[work.stage].put(claim.tier, claim.account, claim.job_id)
        return bool(is_passed)

    async def fail(self, claim: Claim, code: str, message: str, retryable: bool = False) -> bool:
        """End this attempt: queue the job again if that may help, otherwise fail and refund it.

        Returns:
            Whether this ended the job. Also False if the claim was lost to another worker.
        """
        ceiling = self._policy.first_backoff_ms * 2 ** (claim.attempt - 1)
        delay_ms = random.randint(0, ceiling)  # noqa: S311 - jitter, not a secret
        answer = await self._store.run(
            "job_fail",
            ending_keys(self._store.keys, claim.account, claim.job_id),
            [
                *(claim.account, claim.job_id, claim.fence, code, message, int(retryable)),
                *(delay_ms, self._policy.max_attempts),
            ],
        )
        await self._leave(claim)
        if answer == b"RETRY":
            with contextlib.suppress(ServiceUnavailableError):
                lanes = self._lanes[claim.work.stage]
                await lanes.put(claim.tier, claim.account, claim.job_id, delay_ms)
        return bool(answer == b"FAILED")

    async def _leave(self, claim: Claim) -> None:
        with contextlib.suppress(ServiceUnavailableError):
            await self._lanes[claim.work.stage].done(claim.job_id, claim.token, was_served=True)

    async def recover(self, share_ms: int = 0) -> Recovery:
        """Look at every unfinished job whose time has come; call it every second.

        Args:
            share_ms: Do nothing if another caller swept within this time.
        """
        return await self._sweep.recover(share_ms)

    async def standings(self) -> dict[Stage, list[Standing]]:
        """Look at the lanes of every stage.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        return {stage: await lanes.standings() for stage, lanes in self._lanes.items()}

    async def close(self) -> None:
        """Stop listening for events."""
        await self._bus.close()


def _positions(flat: list[Any]) -> list[JobPosition]:
    """Read a ``WITHSCORES`` reply of Redis, in either protocol."""
    pairs = flat if flat and isinstance(flat[0], list) else zip(flat[::2], flat[1::2], strict=True)
    return [JobPosition(int(float(score)), raw.decode()) for raw, score in pairs]
