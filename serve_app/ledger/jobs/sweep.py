"""Find jobs that have lost their worker or their place in a lane, and keep them going.

Invariant: every unfinished job is in its shard's ``open`` index, so none is lost for good.
"""

from collections.abc import Mapping

from serve_app.ledger.jobs.lanes import Lanes
from serve_app.ledger.jobs.records import JobPolicy, ending_keys
from serve_app.ledger.jobs.types import Recovery, Stage, UrlSource
from serve_app.store.client import Store
from serve_app.store.keys import split_member

CRASH_MESSAGE = "the analysis crashed repeatedly on this input; nothing was charged"
QUEUE_MESSAGE = "the job waited too long for a free worker; nothing was charged; submit it again"
RUN_MESSAGE = "the analysis took longer than allowed; nothing was charged"
FIRST_LOOK_MS = 2_000
"""A job not in its lane by then is put there; also the shortest pause between two checks."""

LONGEST_PAUSE_MS = 300_000
"""Longest pause between two checks of a waiting job: the pause is as long as it has waited."""

SWEEP_BATCH = 200


class JobSweep:
    """Looks after the unfinished jobs of all accounts."""

    def __init__(self, store: Store, lanes: Mapping[Stage, Lanes], policy: JobPolicy) -> None:
        self._store = store
        self._lanes = lanes
        self._policy = policy

    async def recover(self, share_ms: int = 0) -> Recovery:
        """Look at every unfinished job whose time has come; call it every second.

        Args:
            share_ms: Do nothing if another caller swept within this time.
        """
        if share_ms and not await self._lanes["analyse"].may_sweep(share_ms):
            return Recovery()
        keys = self._store.keys
        now_ms = await self._store.now_ms()
        due = await self._store.ask(
            [keys.job_index(keys.shard_tag(shard), "open") for shard in range(keys.shards)],
            *("ZRANGEBYSCORE", "-inf", now_ms, "LIMIT", 0, SWEEP_BATCH),
        )
        unclaimed = {
            job: stage for stage, lanes in self._lanes.items() for job in await lanes.expired()
        }
        checks = [await self._check(*job, stage) for job, stage in unclaimed.items()]
        for account, job_id in (split_member(raw) for members in due.values() for raw in members):
            if (account, job_id) not in unclaimed:
                checks.append(await self._check(account, job_id))
        words = [word for word, _ in checks]
        return Recovery(
            requeued=words.count("REQUEUED"),
            failed=words.count("FAILED"),
            enqueued=words.count("ENQUEUE"),
            left_behind=tuple(key for word, key in checks if word == "FAILED" and key),
        )

    async def _check(
        self, account: str, job_id: str, unclaimed: Stage | None = None
    ) -> tuple[str, str]:
        """Check a job; ``unclaimed`` is the stage whose lanes have an expired claim of it.

        Returns:
            The script's word for what it found, and the key of the job's stored audio, or "".
        """
        policy = self._policy
        raw_word, *rest = await self._store.run(
            "job_check",
            ending_keys(self._store.keys, account, job_id),
            [
                *(account, job_id, policy.max_attempts),
                *(int(policy.queue_limit_s * 1000), int(policy.run_limit_s * 1000)),
                *(FIRST_LOOK_MS, LONGEST_PAUSE_MS),
                *(CRASH_MESSAGE, QUEUE_MESSAGE, RUN_MESSAGE, int(policy.lease_s * 1000)),
            ],
        )
        word = str(raw_word.decode())
        if word in ("GONE", "FAILED"):
            for lanes in self._lanes.values():
                await lanes.drop(job_id)
            return word, rest[3].decode() if rest else ""
        kind, tier, delay_ms, key = rest
        stage: Stage = "fetch" if kind.decode() == UrlSource.kind else "analyse"
        if unclaimed not in (None, stage):
            await self._lanes[unclaimed].drop(job_id)  # its next stage has it already
        if word != "WAIT":
            take = unclaimed == stage or word == "REQUEUED"
            lanes = self._lanes[stage]
            await lanes.put(tier.decode(), account, job_id, int(delay_ms), take=take)
        return word, key.decode()
