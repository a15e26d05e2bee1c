"""Liveness and readiness, for probes and operators; no key needed."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve_app.api.door.request import Services, error_responses
from serve_app.api.wire.bodies import Error, Health, HealthStatus

router = APIRouter(tags=["Health"])

ESSENTIAL = "ledger"
"""Without it no request can be admitted; every other part only takes some answers with it."""


@router.get(
    "/healthz",
    response_model=Health,
    responses=error_responses(503),
    summary="Is the process alive?",
)
async def healthz() -> Health:
    """Answer as long as the process can; nothing else is checked."""
    return Health(status="ok", checks={}, degraded=[])


@router.get(
    "/readyz",
    response_model=Health,
    responses={
        **error_responses(400),
        503: {
            "model": Health | Error,
            "description": "Send no requests here. While the service starts, the body is an error.",
        },
    },
    summary="Can the service take requests?",
)
async def readyz(
    response: Response,
    services: Services,
    strict: Annotated[
        bool, Query(description="`true`: 503 even if only a part is unavailable.")
    ] = False,
) -> Health:
    """Check the ledger, the object store and every deployment.

    The answer is 200 as long as requests are accepted here: if a model is unavailable, jobs wait
    for it and look-ups continue. `degraded` names the parts that are unavailable.
    """
    checks = await services.readiness.check()
    degraded = [part for part, state in checks.items() if state != "ok"]
    is_ready = ESSENTIAL not in degraded and not (strict and degraded)
    if not is_ready:
        response.status_code = 503
    status: HealthStatus = "unavailable" if not is_ready else "degraded" if degraded else "ok"
    return Health(status=status, checks=checks, degraded=degraded)
