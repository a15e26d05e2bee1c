"""Jobs: the record, its states, and what a worker holds while it runs one.

States only move queued → running → complete | failed, and running → queued when a lease is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from serve_app.domain.credits import Balance

JOB_HOLD_PREFIX = "job:"


class JobState(StrEnum):
    """The four states of the API."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Nothing can change any more."""
        return self in (JobState.COMPLETE, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to submit. Submitting the same id and fingerprint again changes nothing."""

    job_id: str
    account: str
    tier: str
    kind: str
    payload: Mapping[str, Any]
    cost: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job failed, fit for the customer."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as its owner may see it.

    Attributes:
        balance: The owner's credits right after the submission; None when the job was read later.
    """

    job_id: str
    account: str
    tier: str
    kind: str
    state: JobState
    progress: float
    stage: str
    attempts: int
    cost: int
    credits_used: int
    payload: Mapping[str, Any]
    error: JobFailure | None
    created_at: datetime
    finished_at: datetime | None
    result: bytes | None
    balance: Balance | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one attempt of a job; ``fence`` makes every older right void."""

    job_id: str
    account: str
    tier: str
    kind: str
    payload: Mapping[str, Any]
    cost: int
    attempt: int
    fence: int
    worker_id: str
    token: str


@dataclass(frozen=True, slots=True)
class LaneStats:
    """One lane: what waits, what runs, and how long waiting took lately."""

    lane: str
    depth: int
    owners: int
    in_flight: int
    mean_wait_s: float


@dataclass(frozen=True, slots=True)
class JobStats:
    """All lanes, and the measured service."""

    lanes: tuple[LaneStats, ...]
    mean_service_s: float
    jobs_per_s: float

    @property
    def depth(self) -> int:
        """Jobs waiting in all lanes."""
        return sum(lane.depth for lane in self.lanes)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one sweep did."""

    requeued: int = 0
    failed: int = 0
    reaped: int = 0
    enqueued: int = 0
