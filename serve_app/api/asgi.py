"""Build the ASGI application from its services."""

from fastapi import FastAPI

from serve_app.api import errors, openapi
from serve_app.api.routes import (
    account,
    analysis,
    assets,
    bpm,
    docs,
    features,
    health,
    identify,
    jobs,
    spotify,
    tracks,
)
from serve_app.api.services import ApiServices
from serve_app.api.tracing import TraceMiddleware
from serve_app.api.unread import UnreadBodyMiddleware
from serve_app.domain.tiers import Tiers
from serve_app.store.limits import FAILED_AUTH_PER_MINUTE, JOB_POLL_BURST, JOB_POLLS_PER_S

# The upload and URL routes stand before the look-ups, whose path takes any identifier.
ROUTES = (
    *(health, analysis, jobs, features, tracks, assets, bpm, identify),
    *(account, spotify, docs),
)

DESCRIPTION = """\
Give a track and get tempo, key, beats, loudness, mood, Spotify-style attributes and an embedding.

Every request carries an API key (`Authorization: Bearer …`). Errors always have the body
`{error, message, trace_id}`. Analysis runs as a job: submit, then poll `GET /v1/jobs/{job_id}`.

"""


def describe_limits(tiers: Tiers) -> str:
    """Say how often each tier may ask."""
    rates = "; ".join(
        f"{tier.name} " + ", ".join(f"{kind} {rate}" for kind, rate in tier.rate.items())
        for tier in tiers
    )
    return (
        f"Requests a minute by class: {rates}. One job may be polled {JOB_POLLS_PER_S} time a "
        f"second, {JOB_POLL_BURST} times at once after a pause; a refused poll does not count. An "
        f"address may fail to authenticate {FAILED_AUTH_PER_MINUTE} times a minute. Beyond that "
        "the answer is 429 with `Retry-After`.\n"
    )


def create_app(services: ApiServices) -> FastAPI:
    """Make the application."""
    app = FastAPI(
        title="afa",
        version="v1",
        summary="Audio intelligence over HTTP",
        description=DESCRIPTION + describe_limits(services.tiers),
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": services.public_url}],
    )
    app.state.services = services
    app.add_middleware(TraceMiddleware)
    app.add_middleware(UnreadBodyMiddleware)
    errors.install(app)
    for routes in ROUTES:
        app.include_router(routes.router)
    openapi.install(app)
    return app
