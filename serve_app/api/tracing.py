"""Gives every request a W3C trace id and a start time, counts it, and logs one line for it."""

import logging
import re
import secrets
import time
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.domain.telemetry.facts import about, known_facts
from serve_app.domain.telemetry.metrics import REQUEST_SECONDS, REQUESTS
from serve_app.domain.telemetry.spans import traced_ids

logger = logging.getLogger(__name__)

TRACE_HEADER = b"x-trace-id"
PROBES = frozenset({"/healthz", "/readyz"})
"""Called every few seconds, and not worth a line each."""

TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def trace_id_of(traceparent: str) -> str:
    """Take the caller's trace id if it is valid, otherwise make one.

    References:
        W3C Trace Context, §3.2.
    """
    match = TRACEPARENT.fullmatch(traceparent)
    if match and match[1] != "0" * 32 and match[2] != "0" * 16:
        return match[1]
    return secrets.token_hex(16)


class TraceMiddleware:
    """Sets ``request.state.trace_id`` and ``request.state.started_at`` (monotonic seconds).

    What a route or an error puts into ``request.state.headers`` is sent with any answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        traced_id, _ = traced_ids()
        trace_id = traced_id or trace_id_of(headers.get(b"traceparent", b"").decode("latin-1"))
        headers_to_add: dict[str, str] = {}
        started_at, status = time.monotonic(), 0
        scope.setdefault("state", {}).update(
            trace_id=trace_id, started_at=started_at, headers=headers_to_add
        )

        async def send_traced(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", []),
                    *((k.lower().encode(), v.encode()) for k, v in headers_to_add.items()),
                    (TRACE_HEADER, trace_id.encode()),
                ]
            await send(message)

        with about(trace_id=trace_id):
            try:
                await self.app(scope, receive, send_traced)
            except Exception:
                status = status or HTTPStatus.INTERNAL_SERVER_ERROR  # answered outside this class
                raise
            finally:
                took_s = time.monotonic() - started_at
                route = known_facts().get("route", "none")
                REQUESTS.record(1, route=route, status=f"{status:d}")
                REQUEST_SECONDS.record(took_s, route=route)
                if scope["path"] not in PROBES:
                    words = scope["method"], status, took_s * 1000
                    logger.info("%s answered %d in %.1f ms", *words)
