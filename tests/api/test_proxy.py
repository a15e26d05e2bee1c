"""What Serve's proxy answers by itself reaches a client as one of our errors."""

from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from serve_app.api.proxy import ProxyErrors, middlewares

NOT_FOUND = "Path '/v1/jobs/job_1' not found. Ping http://.../-/routes for available routes."


async def ask(status: int, path: str = "/v1/jobs/job_1", headers: Any = None) -> httpx.Response:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(NOT_FOUND, status, headers)(scope, receive, send)

    transport = httpx.ASGITransport(ProxyErrors(serve))
    async with httpx.AsyncClient(transport=transport, base_url="http://afa") as client:
        return await client.get(path)


async def test_an_unknown_application_is_one_that_starts() -> None:
    answer = await ask(404)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    body = answer.json()
    assert body["error"] == "service_unavailable"
    assert "starting" in body["message"]
    assert body["trace_id"] == answer.headers["X-Trace-Id"]


@pytest.mark.parametrize(
    ("status", "told", "code"),
    [
        (408, 503, "service_unavailable"),
        (503, 503, "service_unavailable"),
        (500, 500, "internal_error"),
    ],
)
async def test_other_failures_of_the_proxy_have_the_body_of_errors(
    status: int, told: int, code: str
) -> None:
    answer = await ask(status)
    assert (answer.status_code, answer.json()["error"]) == (told, code)


async def test_below_the_spotify_mount_the_body_is_spotifys() -> None:
    answer = await ask(404, "/spotify/v1/tracks/1")
    assert answer.status_code == 503
    assert answer.json()["error"]["status"] == 503


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_answers_of_the_application_pass(status: int) -> None:
    answer = await ask(status, headers={"X-Trace-Id": "0" * 32})
    assert (answer.status_code, answer.text) == (status, NOT_FOUND)


async def test_the_probes_of_serve_are_left_to_it() -> None:
    assert (await ask(503, "/-/healthz")).text == NOT_FOUND


def test_serve_finds_the_middleware() -> None:
    (middleware,) = middlewares()
    assert middleware.cls is ProxyErrors
