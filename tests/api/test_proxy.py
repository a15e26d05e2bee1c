"""What Serve's proxy itself answers is retried for reads, and becomes our error otherwise."""

import json
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from serve_app.api import proxy
from serve_app.api.proxy import PAUSES_S, ProxyErrors, middlewares
from serve_app.api.tracing import TRACE_HEADER

NOT_FOUND = "Path '/v1/jobs/job_1' not found. Ping http://.../-/routes for available routes."
TRACED = {"X-Trace-Id": "0" * 32}
NO_ANSWER = 0


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "PAUSES_S", (0.0,) * len(PAUSES_S))


class Serve:
    """Answers with one status after another, then the last for ever, and keeps all bodies."""

    def __init__(self, *statuses: int, headers: Any = None) -> None:
        self.statuses = list(statuses)
        self.headers = headers
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive())["body"])
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        headers = TRACED if status == 200 else self.headers
        if status != NO_ANSWER:
            await PlainTextResponse(NOT_FOUND, status, headers)(scope, receive, send)


async def ask(
    serve: Serve, method: str = "GET", path: str = "/v1/jobs/job_1", **more: Any
) -> httpx.Response:
    transport = httpx.ASGITransport(ProxyErrors(serve))
    async with httpx.AsyncClient(transport=transport, base_url="http://afa") as client:
        return await client.request(method, path, **more)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_read_is_asked_again_until_a_replica_answers(method: str) -> None:
    serve = Serve(404, 503, 500, NO_ANSWER, 200)
    answer = await ask(serve, method)
    assert answer.status_code == 200
    assert serve.bodies == [b""] * 5


@pytest.mark.parametrize("status", [404, 500, 503, NO_ANSWER])
async def test_what_stays_lost_has_the_body_of_errors(status: int) -> None:
    serve = Serve(status)
    answer = await ask(serve)
    assert len(serve.bodies) == len(PAUSES_S) + 1
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    body = answer.json()
    assert body["error"] == "service_unavailable"
    assert ("starting" in body["message"]) == (status == 404)
    assert body["trace_id"] == answer.headers["X-Trace-Id"]


@pytest.mark.parametrize("status", [500, 503, NO_ANSWER])
async def test_what_may_have_been_done_is_asked_once(status: int) -> None:
    serve = Serve(status, 200)
    answer = await ask(serve, "POST", content=b"audio")
    assert serve.bodies == [b"audio"]
    assert answer.status_code == 503
    assert "Idempotency-Key" in answer.json()["message"]


async def test_who_has_waited_to_the_end_is_not_made_to_wait_again() -> None:
    serve = Serve(408, 200)
    assert (await ask(serve)).status_code == 503
    assert len(serve.bodies) == 1


async def test_nothing_is_asked_again_for_a_client_that_has_gone() -> None:
    asked = 0

    async def serve(_: Scope, receive: Receive, __: Send) -> None:
        nonlocal asked
        asked += 1
        while (await receive())["type"] != "http.disconnect":
            pass

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pytest.fail(f"nobody is there for {message}")

    scope = {"type": "http", "method": "GET", "path": "/v1/jobs/job_1", "headers": []}
    await ProxyErrors(serve)(scope, receive, send)
    assert asked == 1


@pytest.mark.parametrize("method", ["OPTIONS", "GET"])
async def test_no_application_is_asked_for_the_server_as_a_whole(method: str) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    serve = Serve(404)
    scope = {"type": "http", "method": method, "path": "*", "headers": []}
    await ProxyErrors(serve)(scope, receive, send)
    body = json.loads(sent[1]["body"])
    assert (sent[0]["status"], serve.bodies) == (404, [])
    assert (body["error"], body["message"]) == ("not_found", "no such path: *; see /docs")
    assert (TRACE_HEADER, body["trace_id"].encode()) in sent[0]["headers"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_header_that_serve_cannot_read_is_refused(method: str) -> None:
    async def serve(scope: Scope, _: Receive, __: Send) -> None:
        dict(scope["headers"])[b"x-request-id"].decode()

    transport = httpx.ASGITransport(ProxyErrors(serve))
    async with httpx.AsyncClient(transport=transport, base_url="http://afa") as client:
        answer = await client.request(method, "/v1/bpm", headers={"X-Request-ID": b"\xe9"})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert answer.json()["trace_id"] == answer.headers["X-Trace-Id"]


async def test_below_the_spotify_mount_the_body_is_spotifys() -> None:
    answer = await ask(Serve(404), path="/spotify/v1/tracks/1")
    assert answer.status_code == 503
    assert answer.json()["error"]["status"] == 503


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_answers_of_the_application_pass(status: int) -> None:
    serve = Serve(status, headers=TRACED)
    answer = await ask(serve)
    assert (answer.status_code, answer.text) == (status, NOT_FOUND)
    assert len(serve.bodies) == 1


async def test_the_probes_of_serve_are_left_to_it() -> None:
    assert (await ask(Serve(503), path="/-/healthz")).text == NOT_FOUND


def test_serve_finds_the_middleware() -> None:
    (middleware,) = middlewares()
    assert middleware.cls is ProxyErrors
