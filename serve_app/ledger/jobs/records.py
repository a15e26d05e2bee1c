"""How to read a job record, which keys a job has, and the limits of all jobs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from serve_app.domain.credits import Balance
from serve_app.domain.errors import InternalError
from serve_app.ledger.jobs.types import (
    JOB_HOLD_PREFIX,
    AnalysisJob,
    FileSource,
    JobFailure,
    JobPosition,
    JobRecord,
    JobState,
    JobSummary,
    NewJob,
)
from serve_app.store.client import Store, from_ms
from serve_app.store.keys import Keyspace

KIND = "analysis"
"""The only kind of job; releases up to 0.1 read it, and may run beside this one."""
LOST_JOB_KEPT_MS = 7 * 24 * 3600 * 1000
LOST_MESSAGE = "the job was lost when a server failed; you were not charged, send it again"


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """Times and limits of all jobs.

    Attributes:
        lease_s: How long a worker may be silent.
        max_attempts: Attempts before a job is given up.
        queue_limit_s: Longest wait for a worker, from each time the job was queued.
        run_limit_s: Longest attempt.
        max_wait_s: Expected wait above which no job is accepted.
        owner_in_flight: Maximum number of one owner's jobs that run at once.
        owner_fetches: Maximum number of one owner's addresses that are fetched at once.
        first_backoff_ms: Longest pause before the second attempt; it doubles with each further one.
    """

    lease_s: float = 30.0
    max_attempts: int = 3
    queue_limit_s: float = 900.0
    run_limit_s: float = 300.0
    max_wait_s: float = 120.0
    owner_in_flight: int = 64
    owner_fetches: int = 2
    first_backoff_ms: int = 1_000


def ending_keys(keys: Keyspace, account: str, job_id: str) -> list[str]:
    """Return the keys that every script that may end a job needs; all in the account's slot."""
    tag = keys.tag(account)
    return [
        *keys.money(account, JOB_HOLD_PREFIX + job_id),
        keys.job(account, job_id),
        *(keys.job_index(tag, "open"), keys.job_index(tag, "dead")),
        *(keys.webhook(account), keys.webhook_index(tag, "due")),
    ]


def new_record(job: NewJob, tier: str, balance: Balance) -> JobRecord:
    """Return the record of a job that has just been accepted."""
    return JobRecord(
        job_id=job.job_id,
        account=job.account,
        tier=tier,
        state=JobState.QUEUED,
        progress=0.0,
        stage="queued",
        attempts=0,
        cost=job.cost,
        credits_used=job.cost,
        work=job.work,
        error=None,
        created_at=datetime.now(UTC),
        finished_at=None,
        result=None,
        balance=balance,
    )


async def write_lost_job(store: Store, account: str, job_id: str) -> None:
    """Write the record of a job that a failover lost: failed, and not charged."""
    key = store.keys.job(account, job_id)
    now_ms = await store.now_ms()
    work = AnalysisJob(FileSource("lost"), max_audio_s=1, max_bytes=1)
    fields: dict[str, str | int] = {
        "acct": account,
        "tier": "free",
        "kind": KIND,
        "state": "failed",
        "payload": json.dumps(work.to_json()),
        "cost": 0,
        "used": 0,
        "code": InternalError.code,
        "message": LOST_MESSAGE,
        "progress": 0,
        "stage": "lost",
        "attempts": 0,
        "created": now_ms,
        "finished": now_ms,
    }
    await store.command("HSET", key, *(word for pair in fields.items() for word in pair))
    await store.command("PEXPIRE", key, LOST_JOB_KEPT_MS)


def parse_record(job_id: str, raw: dict[bytes, bytes]) -> JobRecord:
    """Read the hash that ``lua/lib/jobs.lua`` describes."""
    code = raw.get(b"code")
    finished = raw.get(b"finished")
    return JobRecord(
        job_id=job_id,
        account=raw[b"acct"].decode(),
        tier=raw[b"tier"].decode(),
        state=JobState(raw[b"state"].decode()),
        progress=float(raw[b"progress"]),
        stage=raw[b"stage"].decode(),
        attempts=int(raw[b"attempts"]),
        cost=int(raw[b"cost"]),
        credits_used=int(raw[b"used"]),
        work=AnalysisJob.from_json(json.loads(raw[b"payload"])),
        error=JobFailure(code.decode(), raw[b"message"].decode()) if code is not None else None,
        created_at=from_ms(int(raw[b"created"])),
        finished_at=from_ms(int(finished)) if finished is not None else None,
        result=raw.get(b"result"),
    )


SUMMARY = (
    *("state", "created", "finished", "used", "progress", "stage", "code", "message"),
    "payload",
)


def parse_summary(position: JobPosition, row: Sequence[bytes | None]) -> JobSummary:
    """Read those fields of the hash that `SUMMARY` names."""
    state, created, finished, used, progress, stage, code, message, payload = row
    return JobSummary(
        position=position,
        state=JobState((state or b"").decode()),
        progress=float(progress or 0),
        stage=(stage or b"").decode(),
        credits_used=int(used or 0),
        error=JobFailure(code.decode(), (message or b"").decode()) if code is not None else None,
        trace_id=json.loads(payload or b"{}").get("trace_id", "") if code is not None else "",
        created_at=from_ms(int(created or 0)),
        finished_at=from_ms(int(finished)) if finished is not None else None,
    )
