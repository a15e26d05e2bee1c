"""Build the ASGI application from its services."""

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.routing import Route

from serve_app.api import errors, openapi
from serve_app.api.door.unknown import FIELDS as UNKNOWN_FIELDS
from serve_app.api.door.unknown import HEADER as UNKNOWN_PARAMETERS
from serve_app.api.manners import HeadMiddleware, SlashMiddleware
from serve_app.api.origins import OriginsMiddleware
from serve_app.api.routes import (
    account,
    analysis,
    assets,
    bpm,
    embedding,
    export,
    features,
    health,
    identify,
    jobs,
    library,
    pages,
    similar,
    tracks,
)
from serve_app.api.routes.dialects import acousticbrainz, audiomuse, spotify
from serve_app.api.services import ApiServices
from serve_app.api.tracing import TraceMiddleware
from serve_app.api.unread import UnreadBodyMiddleware
from serve_app.domain.tiers import Tiers
from serve_app.store.limits import FAILED_AUTH_PER_MINUTE, JOB_POLL_BURST, JOB_POLLS_PER_S

# The upload and URL routes come before the look-ups, whose path matches any identifier.
GROUPS = (
    *(health, analysis, jobs, features, tracks, assets, bpm, embedding, identify, library, similar),
    *(export, account, spotify, acousticbrainz, audiomuse),
)

READ_HEADERS = (
    *("X-Trace-Id", "X-Cache", "X-Credits-Used", "X-Credits-Remaining", "X-Test"),
    *("RateLimit", "RateLimit-Policy", "Retry-After", "Idempotent-Replayed"),
    *(UNKNOWN_PARAMETERS, UNKNOWN_FIELDS, "Content-Disposition"),
)
"""Headers that pages of other origins may read in addition to the basic ones."""

DESCRIPTION = """\
Send a track and get tempo, key, beats, loudness, mood, Spotify-style attributes and an embedding.

Send an API key with every request (`Authorization: Bearer …`). Below `/acousticbrainz/` the key may
be part of the address, and programs on the service's machine need none. Errors always have the body
`{error, message, trace_id}`. Analysis runs as a job: submit it, then poll `GET /v1/jobs/{job_id}`.

"""


def describe_limits(tiers: Tiers) -> str:
    """Say how many requests each tier may send."""
    rates = "; ".join(
        f"{tier.name} " + ", ".join(f"{kind} {rate}" for kind, rate in tier.rate.items())
        for tier in tiers
    )
    return (
        f"Requests a minute by class: {rates}. One job may be polled {JOB_POLLS_PER_S} time a "
        f"second, {JOB_POLL_BURST} times at once after a pause; a refused poll does not count. An "
        f"address may fail to authenticate {FAILED_AUTH_PER_MINUTE} times a minute. Beyond these "
        "limits the answer is 429 with `Retry-After`.\n"
    )


NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,
}
"""FastAPI's telemetry, off: it adds a trace next to Serve's, and sends error messages elsewhere."""


def describe(public_url: str, tiers: Tiers) -> FastAPI:
    """Make the application without its services: only its routes and its OpenAPI document."""
    app = FastAPI(
        telemetry=NO_TELEMETRY,
        title="afa",
        version="v1",
        summary="Audio intelligence over HTTP",
        description=DESCRIPTION + describe_limits(tiers),
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": public_url}],
    )
    for group in GROUPS:
        # Not `include_router`, which analyses every route again for each application.
        app.router.routes += group.router.routes
    openapi.install(app)
    return app


def create_app(
    services: ApiServices, *, cors_origins: Sequence[str] = (), playground: bool = True
) -> FastAPI:
    """Make the application.

    Args:
        services: What the routes call.
        cors_origins: Origins of pages that may call it from a browser; ``*`` for all.
        playground: Whether there is a page at ``/``.
    """
    app = describe(services.public_url, services.tiers)
    app.state.services = services
    app.state.parameters = {}
    shown = [pages.reference, pages.playground] if playground else [pages.reference]
    for router in shown:
        app.router.routes += router.routes
    slashed = frozenset(
        route.path for route in app.routes if isinstance(route, Route) and route.path.endswith("/")
    )
    app.add_middleware(SlashMiddleware, slashed=slashed)
    app.add_middleware(HeadMiddleware)
    if cors_origins:
        app.add_middleware(
            OriginsMiddleware,
            allow_origins=cors_origins,
            allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
            # Even those of a page's tracing: keys are sent explicitly, so no header gives access.
            allow_headers=("*",),
            expose_headers=READ_HEADERS,
            # Chrome asks for permission before a public page may call a private address.
            allow_private_network=True,
        )
    app.add_middleware(TraceMiddleware)
    app.add_middleware(UnreadBodyMiddleware)
    errors.install(app)
    return app
