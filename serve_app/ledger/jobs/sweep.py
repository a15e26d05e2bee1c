"""Find jobs whose worker or lane place was lost, and bring them on.

Invariant: every unfinished job is in its shard's ``open`` index, so none is lost for good.
"""

from serve_app.ledger.jobs.lanes import Lanes
from serve_app.ledger.jobs.records import JobPolicy, ending_keys
from serve_app.ledger.jobs.types import Claim, Recovery
from serve_app.store.client import Store
from serve_app.store.keys import split_member

CRASH_MESSAGE = "the analysis crashed repeatedly on this input; nothing was charged"
QUEUE_MESSAGE = "the job waited too long for a free worker; nothing was charged; submit it again"
RUN_MESSAGE = "the analysis took longer than allowed; nothing was charged"
RECHECK_MS = 300_000
SWEEP_BATCH = 200


class JobSweep:
    """Looks after unfinished jobs of all accounts."""

    def __init__(self, store: Store, lanes: Lanes, policy: JobPolicy) -> None:
        self._store = store
        self._lanes = lanes
        self._policy = policy

    async def give_back(self, claim: Claim) -> None:
        """Queue a job again that was claimed for nobody."""
        await self._check(claim.account, claim.job_id, dead_worker=claim.worker_id)

    async def recover(self, share_ms: int = 0) -> Recovery:
        """Look at every unfinished job whose time has come; call it every second.

        Args:
            share_ms: With many callers: do nothing if another one swept within this time.
        """
        if share_ms and not await self._lanes.may_sweep(share_ms):
            return Recovery()
        keys = self._store.keys
        now_ms = await self._store.now_ms()
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
            ending_keys(self._store.keys, account, job_id),
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
