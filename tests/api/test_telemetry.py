"""What operators see of requests and jobs: lines that name the account, counts with few labels."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from ray._common.formatters import JSONFormatter

from serve_app.deployments.telemetry import ToServe
from serve_app.domain.redaction import redact_logs
from serve_app.domain.telemetry.facts import about, pseudonym
from serve_app.ledger.jobs.types import Recovery
from serve_app.services.jobs.recover import recover
from tests.api.application import Application
from tests.recorded import Recorded

pytestmark = pytest.mark.redis

DEMO = "0AfaDemoTrack000000001"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
UPLOAD = "/v1/audio-features/upload"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Our code's log, as Serve writes it."""
    redact_logs()
    written, to_serve = io.StringIO(), ToServe()
    ours, serve = logging.getLogger("serve_app"), logging.getLogger("ray.serve")
    handler = logging.StreamHandler(written)
    handler.setFormatter(JSONFormatter())
    serve.addHandler(handler)
    ours.addHandler(to_serve)
    ours.setLevel(logging.INFO)
    yield written
    ours.removeHandler(to_serve)
    serve.removeHandler(handler)
    ours.setLevel(logging.NOTSET)


def lines(written: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


async def of_jobs(written: io.StringIO, n: int) -> list[dict[str, str]]:
    """Return the lines of ``n`` ended attempts: workers write them after the answer."""
    while len(found := [line for line in lines(written) if "job_id" in line]) < n:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found


async def test_a_request_leaves_a_line_with_trace_account_and_route(
    api: Application, written: io.StringIO
) -> None:
    traceparent = f"00-{TRACE}-00f067aa0ba902b7-01"
    answer = await api.client().get(
        f"/v1/audio-features/{DEMO}?token=hush", headers={"traceparent": traceparent}
    )
    (job,) = await of_jobs(written, 1)  # the job that the request waited for
    assert job["trace_id"] == TRACE
    (line,) = [line for line in lines(written) if line.get("trace_id") == TRACE and line != job]
    assert line["message"].startswith(f"GET answered {answer.status_code} in ")
    assert line["account"] == pseudonym("owner-pro")
    assert (line["route"], line["key"]) == ("/v1/audio-features/{id:path}", "live")
    for secret in ("owner-pro", api.keys["pro"], "hush"):
        assert secret not in written.getvalue()


async def test_the_line_of_a_request_without_a_key_names_nobody(
    api: Application, written: io.StringIO
) -> None:
    answer = await api.client(None).get("/v1/account")
    (line,) = lines(written)
    assert line["trace_id"] == answer.json()["trace_id"]
    assert "account" not in line


async def test_what_a_line_says_itself_goes_before_what_is_known_of_the_request(
    written: io.StringIO,
) -> None:
    with about(route="/v1/tracks", trace_id=TRACE):
        extra = {"provider": "deezer", "route": "/track"}
        logging.getLogger("serve_app.app").info("provider call", extra=extra)
    (line,) = lines(written)
    assert (line["route"], line["provider"], line["trace_id"]) == ("/track", "deezer", TRACE)


async def test_a_fault_of_ours_is_found_by_the_trace_id_that_the_customer_has(
    api: Application,
    written: io.StringIO,
    recorded: Recorded,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(api.stores.ledger, "balance", broken)
    answer = await api.client(raises=False).get("/v1/account")
    (line,) = [line for line in lines(written) if line["levelname"] == "ERROR"]
    assert line["trace_id"] == answer.json()["trace_id"]
    assert "ZeroDivisionError" in line["exc_text"]
    assert recorded.of("afa_requests") == recorded.of("afa_requests", status="500") == [1]


async def test_jobs_are_logged_and_counted_by_outcome(
    api: Application, written: io.StringIO, recorded: Recorded, demo_audio: bytes
) -> None:
    client = api.client()
    job_ids = {}
    for outcome, audio in (("complete", demo_audio), ("failed", b"no audio at all" * 100)):
        headers = {"Content-Type": "audio/mpeg"}
        answer = await client.post(UPLOAD, content=audio, params={"wait": 60}, headers=headers)
        job_ids[outcome] = answer.json()["job_id"]
    ended = await of_jobs(written, 2)
    assert recorded.of("afa_jobs_ended", outcome="complete", code="") == [1]
    assert recorded.of("afa_jobs_ended", outcome="failed", code="unprocessable_audio") == [1]
    assert recorded.of("afa_decodes", outcome="ok") == [1]
    assert sum(recorded.of("afa_decodes")) == 2
    assert recorded.of("afa_credits_charged") == [10]
    assert recorded.labels("afa_credits_charged") == [{"operation": "job", "key": "live"}]
    submitted = {line["trace_id"] for line in lines(written) if "POST answered" in line["message"]}
    for outcome, job_id in job_ids.items():
        (line,) = [line for line in ended if line["job_id"] == job_id]
        assert line["message"].startswith(f"attempt 1 {outcome} after ")
        assert line["trace_id"] in submitted
        assert line["account"] == pseudonym("owner-pro")


async def test_reads_of_the_cache_and_credits_of_a_miss_are_counted(
    api: Application, recorded: Recorded
) -> None:
    client = api.client()
    first = await client.get(f"/v1/audio-features/{DEMO}")
    assert first.json()["_meta"]["cache"] == "miss"
    charged = first.json()["_meta"]["credits_used"]
    (labels,) = recorded.labels("afa_credits_charged")
    assert labels == {"operation": "/v1/audio-features/{id:path}", "key": "live"}
    assert sum(recorded.of("afa_credits_charged")) == charged > 0
    n_hits = len(recorded.of("afa_cache_reads", space="features", outcome="hit"))
    await client.get(f"/v1/audio-features/{DEMO}")
    assert len(recorded.of("afa_cache_reads", space="features", outcome="hit")) > n_hits


async def test_nothing_that_customers_send_becomes_a_label(
    api: Application, recorded: Recorded
) -> None:
    client = api.client(None, raises=False)
    with_key = {"Authorization": f"Bearer {api.keys['test']}"}
    for n in range(60):
        await client.get(f"/wp-admin/{n}.php")
        await client.request(f"VERB{n}", "/v1/account", headers=with_key)
        await client.get(f"/v1/audio-features/isrc:QZAFA26{n:05}", headers=with_key)
        await client.post(
            "/v1/audio-features/url",
            json={"url": f"http://10.0.0.{n}/a.mp3"},
            headers=with_key,
        )
    labels = [dict(found) for _, found in recorded.values]
    assert len(labels) < 30
    assert recorded.labels("afa_urls_blocked") == [{"by": "address"}]
    routes = {labels["route"] for labels in recorded.labels("afa_requests")}
    assert routes == {"none", "/v1/audio-features/url", "/v1/audio-features/{id:path}"}


async def test_a_job_that_the_sweep_gives_up_is_counted(
    api: Application, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def swept() -> Recovery:
        return Recovery(requeued=2, failed=1)

    monkeypatch.setattr(api.stores.jobs, "recover", swept)
    await recover(api.stores.jobs, api.stores.objects)
    assert recorded.of("afa_jobs_ended", outcome="failed", code="given_up") == [1]
    assert recorded.of("afa_job_attempts_lost", code="worker_lost") == [2]
