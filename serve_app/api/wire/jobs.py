"""Jobs on the wire, and the mapping of a record to its envelope."""

from datetime import datetime
from typing import Literal

from fastapi import Request
from pydantic import Field

from pipelines.analysis.features import from_json
from serve_app.api.services import ApiServices
from serve_app.api.wire.assets import UrlInput
from serve_app.api.wire.bodies import Error, Meta, Unit, WireModel
from serve_app.api.wire.features import AnalysisFeatures, SpotifyFeatures, to_analysis, to_spotify
from serve_app.api.wire.meanings import META
from serve_app.api.wire.meta import meta_of
from serve_app.domain.keys import Caller
from serve_app.ledger.jobs.types import JobFailure, JobPosition, JobRecord, JobSummary

CURSOR = r"^[0-9]{1,15}\.job_[0-9a-z]{26}$"


class JobMeta(Meta):
    """`Meta` of a job, with its progress."""

    progress: Unit = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.", examples=["decode", "analyse"])


class JobEnvelope(WireModel):
    """An analysis job."""

    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="`complete` and `failed` are final."
    )
    job_id: str = Field(
        description="Poll `GET /v1/jobs/{job_id}` with it.",
        examples=["job_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    result: AnalysisFeatures | SpotifyFeatures | None = Field(
        None, description="Set when `status` is `complete`."
    )
    error: Error | None = Field(None, description="Set when `status` is `failed`.")
    meta: JobMeta = Field(alias="_meta", description=META)


class ListedJob(WireModel):
    """A job without its result."""

    job_id: str = Field(
        description="Poll `GET /v1/jobs/{job_id}` with it.",
        examples=["job_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    status: Literal["queued", "running", "complete", "failed"] = Field(
        description="`complete` and `failed` are final."
    )
    progress: Unit = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.")
    credits_used: int = Field(
        description="Credits reserved while the job is unfinished, then charged."
    )
    error: Error | None = Field(description="Why it failed; null otherwise.")
    created_at: datetime = Field(description="When it was submitted.")
    finished_at: datetime | None = Field(description="When it ended; null before that.")


class JobList(WireModel):
    """One page of jobs, newest first."""

    items: list[ListedJob] = Field(description="Jobs that have not expired.")
    next_cursor: str | None = Field(
        description="Pass as `cursor` to get the next page; null when there are no more items."
    )
    count: int = Field(ge=0, description="Number of items in this page.")


class UrlAnalysisRequest(UrlInput):
    """Where to fetch the audio, and what to compute."""

    include_embedding: bool = Field(False, description="Adds a 768-d embedding (PRO and Scale).")


def failure(error: JobFailure | None, submitted_in: str, trace_id: str) -> Error | None:
    """Say why a job failed; its logs have the trace id of its submission, not that of a poll."""
    if error is None:
        return None
    return Error(error=error.code, message=error.message, trace_id=submitted_in or trace_id)


def listed_job(job: JobSummary, trace_id: str) -> ListedJob:
    """Describe a job in a listing whose request has that trace id."""
    return ListedJob(
        job_id=job.position.job_id,
        status=job.state.value,
        progress=job.progress,
        stage=job.stage,
        credits_used=job.credits_used,
        error=failure(job.error, job.trace_id, trace_id),
        created_at=job.created_at,
        finished_at=job.finished_at,
    )


def cursor_of(position: JobPosition | None) -> str | None:
    """Write a position as a cursor."""
    return None if position is None else f"{position.created_ms}.{position.job_id}"


def position_of(cursor: str | None) -> JobPosition | None:
    """Read a cursor of the form that `CURSOR` describes."""
    if cursor is None:
        return None
    created_ms, _, job_id = cursor.partition(".")
    return JobPosition(int(created_ms), job_id)


async def job_envelope(
    request: Request, services: ApiServices, caller: Caller, job: JobRecord, format: str | None
) -> JobEnvelope:
    """Describe ``job`` to its owner, with the balance as it is now.

    A job that was just submitted already has it: after the charge, the answer must not fail.
    """
    balance = job.balance or await services.ledger.balance(caller.account, caller.tier)
    result: AnalysisFeatures | SpotifyFeatures | None = None
    if job.result is not None:
        features = from_json(job.result)
        wanted = format or job.work.format
        if wanted == "spotify":
            result = to_spotify(features, job.job_id, services.public_url)
        else:
            result = to_analysis(features)
    return JobEnvelope(
        status=job.state.value,
        job_id=job.job_id,
        result=result,
        error=failure(job.error, job.work.trace_id, request.state.trace_id),
        meta=JobMeta(
            **dict(meta_of(request, "bypass", job.credits_used, balance.remaining)),
            progress=job.progress,
            stage=job.stage,
        ),
    )
