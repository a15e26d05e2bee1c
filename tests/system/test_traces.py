"""One job as a collector of OpenTelemetry sees it, from the request to every batch."""

import time
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from tests.system.collector import Collector, Seen
from tests.system.conftest import Service
from tests.system.test_service import DEMO, finish, submit

pytestmark = [pytest.mark.ray, pytest.mark.redis]

STAGES = {"job", "fetch", "decode", "analyse", "finish"}
COLOURS = dict.fromkeys(STAGES, "tab:blue")
COLOURS["batch"] = "tab:orange"

ANALYSIS = ("Spectral", "Mood", "Embedding")


def trace_of(collector: Collector, trace_id: str) -> list[Seen]:
    """Wait until all spans of a job have arrived; each process sends them at its own pace."""
    deadline = time.monotonic() + 240
    while not is_whole(spans := collector.of(trace_id)):
        assert time.monotonic() < deadline, spans
        time.sleep(0.2)
    return spans


def is_whole(spans: list[Seen]) -> bool:
    """Return whether the trace has the job's stages and the batches of every deployment."""
    by_id = {span.span_id: span for span in spans}
    root = next((span.name for span in spans if not span.parent_id), "")
    chains = [above(span, by_id) for span in spans if span.name in ("job", "batch")]
    below = {chain[0] for chain in chains if chain}
    return (
        {span.name for span in spans} >= STAGES
        and {f"replica_handle_request {name} analyse" for name in ANALYSIS} <= below
        and all(chain and chain[-1] == root for chain in chains)
    )


def above(span: Seen, spans: Mapping[str, Seen]) -> list[str]:
    names = []
    while parent := spans.get(span.parent_id):
        names.append(parent.name)
        span = parent
    return names


def test_a_job_is_one_trace_from_the_request_to_each_batch(
    service: Service, collector: Collector, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with service.client() as client:
        answer = submit(client, DEMO.read_bytes(), "audio/mpeg")
        job_id = answer.json()["job_id"]
        finish(client, job_id)
    spans = trace_of(collector, answer.headers["X-Trace-Id"])
    by_id = {span.span_id: span for span in spans}
    (job,) = [span for span in spans if span.name == "job"]
    assert job.facts["afa.job_id"] == job_id
    assert job.facts["afa.outcome"] == "complete"
    assert any(name.startswith("replica_handle_request Api") for name in above(job, by_id))
    assert {"fetch", "decode", "analyse", "finish"} <= {
        span.name for span in spans if span.parent_id == job.span_id
    }
    batches = [span for span in spans if span.name == "batch"]
    for deployment in ANALYSIS:
        name = f"replica_handle_request {deployment} analyse"
        below = [span for span in batches if above(span, by_id)[0] == name]
        assert below, deployment
        for batch in below:
            assert above(batch, by_id)[-1] == next(s.name for s in spans if not s.parent_id)
            assert 1 <= batch.facts["afa.windows"] <= batch.facts["afa.batch.windows"]
            assert job.begun_s < batch.begun_s < batch.ended_s < job.ended_s
    kept = (request.config.getoption("--screenshots") or tmp_path) / "trace.png"
    drawn(spans).savefig(kept, dpi=110)
    assert kept.stat().st_size > 10_000


def drawn(spans: list[Seen]) -> Figure:
    """Draw a trace as a waterfall, with each span below its parent."""
    children: dict[str, list[Seen]] = {}
    for span in sorted(spans, key=lambda span: span.begun_s):
        children.setdefault(span.parent_id, []).append(span)
    rows: list[Seen] = []

    def walk(parent_id: str) -> None:
        for span in children.get(parent_id, []):
            rows.append(span)
            walk(span.span_id)

    walk("")
    start_s = min(span.begun_s for span in spans)
    figure, axes = plt.subplots(figsize=(12, 0.26 * len(rows) + 0.8), layout="constrained")
    for row, span in enumerate(rows):
        begun_s, took_s = span.begun_s - start_s, span.ended_s - span.begun_s
        colour = COLOURS.get(span.name, "0.7")
        axes.barh(row, max(took_s, 0.004), left=begun_s, color=colour, height=0.7)
        end = (begun_s + took_s, row)
        words = f"{1000 * took_s:.0f} ms"
        axes.annotate(words, end, (4, 0), textcoords="offset points", va="center", fontsize=8)
    depths = {"": -1}
    labels = []
    for span in rows:
        depths[span.span_id] = depths[span.parent_id] + 1
        label = span.name
        if span.name == "batch":
            label += f" of {span.facts['afa.model']}, windows: {span.facts['afa.windows']}"
        labels.append("    " * depths[span.span_id] + label)
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    for tick in axes.get_yticklabels():
        tick.set_horizontalalignment("left")
    axes.tick_params(axis="y", length=0, pad=320)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.08 * max(span.ended_s - start_s for span in rows))
    axes.set_xlabel("seconds since the request")
    axes.spines[["left", "right", "top"]].set_visible(False)
    return figure
