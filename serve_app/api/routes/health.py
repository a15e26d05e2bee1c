"""Liveness and readiness, for probes and operators; no key needed."""

from fastapi import APIRouter, Response

from serve_app.api.door.request import Services
from serve_app.api.wire.bodies import Health

router = APIRouter(tags=["Health"])


@router.get("/healthz", response_model=Health, summary="Is the process alive?")
async def healthz() -> Health:
    """Answer as long as the process can; looks at nothing else."""
    return Health(status="ok", checks={})


@router.get(
    "/readyz",
    response_model=Health,
    responses={503: {"model": Health, "description": "Some part is not ready."}},
    summary="Can the service do its work?",
)
async def readyz(response: Response, services: Services) -> Health:
    """Check the ledger, the object store and every model deployment."""
    checks = await services.readiness.check()
    is_ready = all(state == "ok" for state in checks.values())
    if not is_ready:
        response.status_code = 503
    return Health(status="ok" if is_ready else "unavailable", checks=checks)
