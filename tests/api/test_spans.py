"""Spans of jobs: below the request that asked for them; of a failure they say only the type."""

import asyncio

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serve_app.domain.telemetry import spans
from tests.api.application import Application

pytestmark = pytest.mark.redis

UPLOAD = "/v1/audio-features/upload"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(spans, "tracer", provider.get_tracer("afa"))
    return kept


async def of_a_job(kept: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Return the spans of the first job that ends: workers end it after the answer."""
    while "job" not in (found := {span.name: span for span in kept.get_finished_spans()}):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found


async def test_a_job_is_below_the_request_that_asked_for_it(
    api: Application, kept: InMemorySpanExporter, demo_audio: bytes
) -> None:
    with spans.span("request") as request:
        answer = await api.client().post(UPLOAD, content=demo_audio, params={"wait": 60})
    found = await of_a_job(kept)
    asked = request.get_span_context()
    job = found["job"]
    assert job.parent is not None
    assert (job.parent.trace_id, job.parent.span_id) == (asked.trace_id, asked.span_id)
    assert answer.headers["X-Trace-Id"] == f"{asked.trace_id:032x}"
    for stage in ("fetch", "decode", "analyse", "finish"):
        assert found[stage].parent == job.get_span_context()
    assert job.attributes is not None
    assert job.attributes["afa.job_id"] == answer.json()["job_id"]
    assert job.attributes["afa.outcome"] == "complete"


async def test_a_span_that_failed_says_the_type_alone(
    api: Application, kept: InMemorySpanExporter
) -> None:
    headers = {"Content-Type": "audio/mpeg"}
    bad = b"no audio at all" * 100
    await api.client().post(UPLOAD, content=bad, params={"wait": 60}, headers=headers)
    decode = (await of_a_job(kept))["decode"]
    assert not decode.status.is_ok
    assert decode.status.description == "UndecodableAudioError"
    assert not decode.events


async def test_a_request_that_nobody_traces_has_an_id_and_its_job_no_parent(
    api: Application, kept: InMemorySpanExporter, demo_audio: bytes
) -> None:
    answer = await api.client().post(UPLOAD, content=demo_audio, params={"wait": 60})
    assert (await of_a_job(kept))["job"].parent is None
    assert len(answer.headers["X-Trace-Id"]) == 32
