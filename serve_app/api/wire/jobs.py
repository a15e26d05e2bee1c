"""Map a job record to its envelope."""

from fastapi import Request

from pipelines.analysis.features import from_json
from serve_app.api.door.request import latency_ms
from serve_app.api.services import ApiServices
from serve_app.api.wire.features import to_analysis, to_spotify
from serve_app.api.wire.schemas import (
    AnalysisFeatures,
    Error,
    JobEnvelope,
    JobMeta,
    SpotifyFeatures,
)
from serve_app.domain.keys import Caller
from serve_app.ledger.jobs.types import JobRecord


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
