"""Lets a request in: checks its caller, scope and rate.

Every answer, including refusals, carries ``RateLimit-Policy`` and ``RateLimit`` (IETF
draft-ietf-httpapi-ratelimit-headers-11).
"""

from typing import Annotated, Literal

from fastapi import Depends, Path, Request

from serve_app.api.door.request import Authenticated, Services, rate_headers
from serve_app.api.services import ApiServices
from serve_app.domain.errors import RateLimitError, ScopeRequiredError
from serve_app.domain.keys import Caller
from serve_app.store.limits import JOB_POLLS_PER_S, Decision

Kind = Literal["read", "compute", "poll"]
Scope = Literal["read", "compute", "assets"]


def admit(request: Request, *decisions: Decision) -> None:
    """Note the headers, and refuse the request if any decision does.

    Raises:
        RateLimitError: A decision refuses; it has the longest wait of all.
    """
    request.state.headers.update(rate_headers(*decisions))
    refused = [decision for decision in decisions if not decision.allowed]
    if refused:
        raise RateLimitError(
            f"too many requests of class {refused[0].kind}; your tier allows "
            f"{refused[0].limit} in {refused[0].window_s} s",
            max(decision.retry_after_s for decision in refused),
        )


def require_scope(caller: Caller, scope: Scope) -> None:
    """Refuse a key that was issued without the scope.

    Raises:
        ScopeRequiredError: The key lacks it.
    """
    if scope not in caller.scopes:
        raise ScopeRequiredError(f"this API key lacks the scope {scope!r}; use another key")


class Door:
    """Lets in the callers of one class of requests, and counts each request once.

    It is a dependency of routes; a route that reads a body before FastAPI looks at the request
    calls its door itself.
    """

    def __init__(self, kind: Kind, scope: Scope) -> None:
        self._kind = kind
        self._scope = scope

    async def __call__(self, request: Request, caller: Authenticated, services: Services) -> Caller:
        """Let the caller in.

        Raises:
            ScopeRequiredError: The key lacks the scope.
            RateLimitError: Too many requests of the class.
        """
        if not getattr(request.state, "is_let_in", False):
            require_scope(caller, self._scope)
            tier = services.tiers[caller.tier]
            admit(request, await services.limits.check(caller.owner, self._kind, tier))
            request.state.is_let_in = True
        return caller


async def admission_to_read(request: Request, caller: Caller, services: ApiServices) -> None:
    """Let in a look-up that does this itself, in parallel with its first look in the cache.

    Raises:
        RateLimitError: Too many reads.
    """
    admit(request, await services.limits.check(caller.owner, "read", services.tiers[caller.tier]))


async def let_look_up(caller: Authenticated) -> Caller:
    """Let in a key that may read; its rate is checked by `admission_to_read`."""
    require_scope(caller, "read")
    return caller


JobId = Annotated[
    str,
    Path(
        description="As returned when the job was submitted.",
        examples=["job_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    ),
]


async def let_poll(
    request: Request, job_id: JobId, caller: Authenticated, services: Services
) -> Caller:
    """Let in a poll: one a second for each job, and the class's rate; refused ones do not count.

    Raises:
        RateLimitError: There were too many.
    """
    require_scope(caller, "read")
    of_job = await services.limits.check_job_poll(caller.owner, job_id[:64])
    request.state.headers.update(rate_headers(of_job))
    if not of_job.allowed:
        raise RateLimitError(
            f"this job was polled more than {JOB_POLLS_PER_S} time a second; wait, or let one "
            "request wait for the job's end: ?wait=30",
            of_job.retry_after_s,
        )
    tier = services.tiers[caller.tier]
    admit(request, await services.limits.check(caller.owner, "poll", tier), of_job)
    return caller


let_read = Door("read", "read")

Reader = Annotated[Caller, Depends(let_read)]
LookupReader = Annotated[Caller, Depends(let_look_up)]
Computer = Annotated[Caller, Depends(Door("compute", "compute"))]
AssetReader = Annotated[Caller, Depends(Door("read", "assets"))]
AssetWriter = Annotated[Caller, Depends(Door("compute", "assets"))]
Poller = Annotated[Caller, Depends(let_poll)]
