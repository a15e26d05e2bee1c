"""What Serve's proxy answers by itself, put into our words.

Serve answers 404 as long as it knows no application, and bare text when a replica is lost. A client
would read "unknown job". Every answer of ours carries a trace id; a failure without one is Serve's.

Serve calls `middlewares` in each proxy that is started with the environment variable ``CALLBACK``.
"""

from http import HTTPStatus

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.api.errors import error_answer
from serve_app.api.tracing import TRACE_HEADER, trace_id_of
from serve_app.domain.errors import AfaError, InternalError, ServiceUnavailableError
from serve_app.domain.redaction import redact_logs

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
MIDDLEWARES = "serve_app.api.proxy:middlewares"
OWN_PATHS = "/-/"
"""Serve's probes; load balancers of a cluster ask them."""

RETRY_AFTER_S = 5


def middlewares() -> list[Middleware]:
    """Give what Serve's proxy wraps its application in; its process logs redacted from now on."""
    redact_logs()
    return [Middleware(ProxyErrors)]


def error_of(status: int) -> AfaError:
    """Say what a failure of the proxy means to a client."""
    if status == HTTPStatus.NOT_FOUND:
        return ServiceUnavailableError("the service is starting; try again", RETRY_AFTER_S)
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.SERVICE_UNAVAILABLE):
        return ServiceUnavailableError(
            "no answer came in time; try again, with an Idempotency-Key to be charged once",
            RETRY_AFTER_S,
        )
    return InternalError(
        "the answer was lost on the way; try again, with an Idempotency-Key to be charged once"
    )


class ProxyErrors:
    """Gives failures that are not the application's the body of all errors."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"].startswith(OWN_PATHS):
            await self.app(scope, receive, send)
            return
        is_replaced = False

        async def send_ours(message: Message) -> None:
            nonlocal is_replaced
            if message["type"] == "http.response.start" and is_foreign_failure(message):
                is_replaced = True
                await answer(message["status"], scope, receive, send)
            elif not is_replaced:
                await send(message)

        await self.app(scope, receive, send_ours)


def is_foreign_failure(start: Message) -> bool:
    """Tell whether an answer is a failure, and not the application's."""
    return start["status"] >= HTTPStatus.BAD_REQUEST and all(
        name.lower() != TRACE_HEADER for name, _ in start.get("headers", [])
    )


async def answer(status: int, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in place of the proxy."""
    traceparent = dict(scope["headers"]).get(b"traceparent", b"").decode("latin-1")
    trace_id = trace_id_of(traceparent)
    response = error_answer(scope["path"], error_of(status), trace_id)
    response.headers[TRACE_HEADER.decode()] = trace_id
    await response(scope, receive, send)
