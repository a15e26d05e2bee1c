"""Rewords what Serve's proxy answers by itself.

Serve answers 404 as long as it knows no application, and plain text or nothing when a replica is
lost. A client would read "unknown job". Every answer of ours carries a trace id; a failure without
one is Serve's.

A request that only reads is tried again before the client gets an error: by then a replica that was
lost may have a successor.

Serve calls `middlewares` in each proxy that is started with the environment variable ``CALLBACK``.
"""

import asyncio
import logging
from http import HTTPStatus

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api.errors import error_answer
from serve_app.api.heads import bound_heads
from serve_app.api.tracing import TRACE_HEADER, trace_id_of
from serve_app.api.unread import announces_body
from serve_app.domain.errors import (
    AfaError,
    BadRequestError,
    RouteNotFoundError,
    ServiceUnavailableError,
)
from serve_app.domain.redaction import redact_logs

logger = logging.getLogger("ray.serve")  # a proxy shows no other logger

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
MIDDLEWARES = "serve_app.api.proxy:middlewares"
OWN_PATHS = "/-/"
"""Serve's probes, which a cluster's load balancers use."""

WHOLE_SERVER = "*"
"""What ``OPTIONS`` may name instead of a path; Serve knows no application there."""

RETRY_AFTER_S = 5

PAUSES_S = (0.1, 0.4, 1.0, 2.0)
"""Pauses before a read that Serve lost is tried again."""

NO_BODY: Message = {"type": "http.request", "body": b"", "more_body": False}


def middlewares() -> list[Middleware]:
    """Return the middlewares that Serve's proxy puts around its application.

    From now on its process redacts its logs and limits the heads of requests.
    """
    redact_logs()
    bound_heads()
    return [Middleware(ProxyErrors)]


def error_of(status: int) -> ServiceUnavailableError:
    """Say what a failure of the proxy means to a client."""
    if status == HTTPStatus.NOT_FOUND:
        return ServiceUnavailableError("the service is starting; try again", RETRY_AFTER_S)
    return ServiceUnavailableError(
        "the answer was lost on the way; try again, with an Idempotency-Key to be charged once",
        RETRY_AFTER_S,
    )


class ProxyErrors:
    """Tries again if Serve lost a read, and gives remaining failures the body of all errors."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"].startswith(OWN_PATHS):
            await self.app(scope, receive, send)
            return
        if scope["path"] == WHOLE_SERVER:
            await answer(RouteNotFoundError("no such path: *; see /docs"), scope, receive, send)
            return
        is_read = scope["method"] in ("GET", "HEAD") and not announces_body(scope)
        try:
            failure = await (self._read if is_read else self._ask)(scope, receive, send)
        except UnicodeDecodeError:  # Serve reads some headers itself, such as X-Request-ID
            error = BadRequestError("a header of the request is not UTF-8")
            await answer(error, scope, receive, send)
            return
        if failure is not None:
            await answer(error_of(failure), scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> int | None:
        for pause_s in PAUSES_S:
            failure = await self._ask(scope, bodiless(receive), send)
            if failure is None or failure == HTTPStatus.REQUEST_TIMEOUT:
                return failure
            logger.warning("Serve lost a read (%d); asking again", failure)
            await asyncio.sleep(pause_s)
        return await self._ask(scope, bodiless(receive), send)

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> int | None:
        """Ask Serve, and pass its answer on unless it is Serve's own failure.

        Returns:
            The failure's status; None if an answer was passed on, or the client no longer waits.
        """
        failure: int | None = HTTPStatus.INTERNAL_SERVER_ERROR  # a lost replica: no answer at all

        async def receive_watched() -> Message:
            nonlocal failure
            message = await receive()
            if message["type"] == "http.disconnect":
                failure = None
            return message

        async def send_ours(message: Message) -> None:
            nonlocal failure
            if message["type"] == "http.response.start":
                failure = message["status"] if is_foreign_failure(message) else None
            if failure is None:
                await send(message)

        await self.app(dict(scope), receive_watched, send_ours)
        return failure


def bodiless(receive: Receive) -> Receive:
    """Return a receive function for a request without a body, which can be called repeatedly."""
    is_told = False

    async def receive_again() -> Message:
        nonlocal is_told
        if not is_told:
            is_told = True
            return NO_BODY
        while (message := await receive())["type"] == NO_BODY["type"]:
            pass
        return message

    return receive_again


def is_foreign_failure(start: Message) -> bool:
    """Return whether an answer is a failure, and not from the application."""
    return start["status"] >= HTTPStatus.BAD_REQUEST and all(
        name.lower() != TRACE_HEADER for name, _ in start.get("headers", [])
    )


async def answer(error: AfaError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer instead of the proxy."""
    traceparent = dict(scope["headers"]).get(b"traceparent", b"").decode("latin-1")
    trace_id = trace_id_of(traceparent)
    response = error_answer(scope["path"], error, trace_id)
    response.headers[TRACE_HEADER.decode()] = trace_id
    await response(scope, receive, send)
