"""Poll jobs."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from serve_app.api.door.limits import Poller
from serve_app.api.door.request import Format, Offered, Services, error_responses
from serve_app.api.wire.jobs import JobEnvelope, job_envelope

router = APIRouter(tags=["Jobs"])


@router.get(
    "/v1/jobs/{job_id}",
    response_model=JobEnvelope,
    responses=error_responses(400, 401, 404, 429, 503),
    summary="Poll a job",
)
async def get_job(
    request: Request,
    caller: Poller,
    services: Services,
    offered: Offered,
    job_id: Annotated[str, Path(description="As returned when the job was submitted.")],
    format: Format = None,
    wait: Annotated[
        float,
        Query(ge=0, le=60, description="Answer when the job ends or after so many seconds."),
    ] = 0,
) -> JobEnvelope:
    """See how far a job is; once `status` is `complete`, `result` has the features.

    Free of charge. The shape is the one `format` asks for, else the one asked for at submission.
    """
    job = await offered.analysis.get_job(caller, job_id, wait)
    return await job_envelope(request, services, caller, job, format)
