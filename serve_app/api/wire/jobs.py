"""Jobs on the wire, and the mapping of a record to its envelope."""

from typing import Literal

from fastapi import Request
from pydantic import Field

from pipelines.analysis.features import from_json
from serve_app.api.door.request import latency_ms
from serve_app.api.services import ApiServices
from serve_app.api.wire.bodies import Error, Meta, Unit, WireModel
from serve_app.api.wire.features import AnalysisFeatures, SpotifyFeatures, to_analysis, to_spotify
from serve_app.domain.keys import Caller
from serve_app.ledger.jobs.types import JobRecord


class JobMeta(Meta):
    """`Meta` of a job: also how far it is."""

    progress: Unit = Field(description="0 when queued, 1 when complete.")
    stage: str = Field(description="What is being done now.", examples=["decode", "analyse"])


class JobEnvelope(WireModel):
    """An analysis job."""

    status: Literal["queued", "running", "complete", "failed"]
    job_id: str = Field(examples=["job_01jb3q8k6ya7rj1v6fwb2q4m9d"])
    result: AnalysisFeatures | SpotifyFeatures | None = Field(
        None, description="Filled when `status` is `complete`."
    )
    error: Error | None = Field(None, description="Filled when `status` is `failed`.")
    meta: JobMeta = Field(alias="_meta")


class UrlAnalysisRequest(WireModel):
    """Where to fetch the audio, and what to compute."""

    url: str = Field(
        min_length=1,
        max_length=4096,
        description="Public HTTP(S) address that returns audio bytes directly.",
        json_schema_extra={"format": "uri"},
        examples=["https://example.org/track.mp3"],
    )
    include_embedding: bool = Field(False, description="Adds a 768-d embedding (PRO and Scale).")


async def job_envelope(
    request: Request, services: ApiServices, caller: Caller, job: JobRecord, format: str | None
) -> JobEnvelope:
    """Describe ``job`` to its owner, with the balance as it is now.

    A job that was just submitted brings it along: once it is charged, the answer must not fail.
    """
    balance = job.balance or await services.ledger.balance(caller.account, caller.tier)
    trace_id = request.state.trace_id
    result: AnalysisFeatures | SpotifyFeatures | None = None
    if job.result is not None:
        features = from_json(job.result)
        wanted = format or job.work.format
        if wanted == "spotify":
            result = to_spotify(features, job.job_id, services.public_url)
        else:
            result = to_analysis(features)
    error = None
    if job.error is not None:
        error = Error(error=job.error.code, message=job.error.message, trace_id=trace_id)
    return JobEnvelope(
        status=job.state.value,
        job_id=job.job_id,
        result=result,
        error=error,
        meta=JobMeta(
            cache="bypass",
            latency_ms=latency_ms(request),
            credits_used=job.credits_used,
            credits_remaining=balance.remaining,
            trace_id=trace_id,
            progress=job.progress,
            stage=job.stage,
        ),
    )
