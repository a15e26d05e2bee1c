"""Poll, list and delete jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from serve_app.api.door.limits import Computer, JobId, Poller, Reader
from serve_app.api.door.request import Format, Offered, Services, error_responses
from serve_app.api.wire.bodies import Error
from serve_app.api.wire.forms import A_CURSOR, PLAIN, Form
from serve_app.api.wire.jobs import (
    CURSOR,
    JobEnvelope,
    JobList,
    cursor_of,
    job_envelope,
    listed_job,
    position_of,
)

router = APIRouter(tags=["Jobs"])

RUNNING: dict[int | str, dict[str, Any]] = {
    409: {"model": Error, "description": "The job is running."}
}


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
    job_id: JobId,
    format: Format = None,
    wait: Annotated[
        float,
        Query(ge=0, le=60, description="Answer when the job ends, or after this many seconds."),
        PLAIN,
    ] = 0,
) -> JobEnvelope:
    """See the progress of a job; once `status` is `complete`, `result` has the features.

    Free of charge. `format` sets the shape; by default it is the one asked for at submission.
    """
    job = await offered.analysis.get_job(caller, job_id, wait)
    return await job_envelope(request, services, caller, job, format)


@router.get(
    "/v1/jobs",
    response_model=JobList,
    responses=error_responses(400, 401, 429, 503),
    summary="List jobs",
)
async def list_jobs(
    request: Request,
    caller: Reader,
    offered: Offered,
    limit: Annotated[int, Query(ge=1, le=200, description="Items per page."), PLAIN] = 50,
    cursor: Annotated[
        Annotated[str, Form(CURSOR, A_CURSOR)] | None,
        Query(description="`next_cursor` of the previous page; exclusive."),
    ] = None,
) -> JobList:
    """List your jobs that have not expired, newest first, without their results. Free."""
    items, position = await offered.analysis.page(caller, limit, position_of(cursor))
    return JobList(
        items=[listed_job(job, request.state.trace_id) for job in items],
        next_cursor=cursor_of(position),
        count=len(items),
    )


@router.delete(
    "/v1/jobs/{job_id}",
    status_code=204,
    responses=error_responses(400, 401, 404, 429, 503) | RUNNING,
    summary="Delete a job",
)
async def delete_job(
    caller: Computer,
    offered: Offered,
    job_id: JobId,
) -> Response:
    """Delete a job and its result. A job that is still queued is cancelled and refunded.

    A running job is 409: delete it when it has ended.
    """
    await offered.analysis.delete(caller, job_id)
    return Response(status_code=204)
