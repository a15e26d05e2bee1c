"""Metrics of a replica's batchers, and spans for the tracks in them.

Invariant: a few records per batch and one per track, microseconds each; nothing per window.
"""

import time
from collections.abc import Iterable, Mapping

from pipelines.batching.batcher import BatcherMetrics, Observation
from serve_app.domain.telemetry import metrics
from serve_app.domain.telemetry.spans import tracer


def observe(model_id: str, seen: Observation) -> None:
    """Record what a batcher has done."""
    for queue_s in seen.queue_s:
        metrics.BATCH_QUEUE_SECONDS.record(queue_s, model=model_id)
    if seen.windows:
        metrics.BATCH_WINDOWS.record(seen.windows, model=model_id)
        metrics.BATCH_DEVICE_SECONDS.record(seen.device_s, model=model_id)
    if seen.batch_s:
        metrics.BATCH_SECONDS.record(seen.batch_s, model=model_id)
        in_batch = sum(windows for _, windows in seen.shares)
        for context, windows in seen.shares:
            facts: dict[str, str | int] = {
                "afa.model": model_id,
                "afa.windows": windows,
                "afa.batch.windows": in_batch,
            }
            context.run(span_until_now, seen.batch_s, facts)
    for counter, n in (
        (metrics.DEVICE_BUSY, seen.device_s),
        (metrics.BATCH_PADDING, seen.padded_windows),
        (metrics.BATCH_DROPPED, seen.dropped_windows),
        (metrics.BATCH_FAILED, seen.failed_tracks),
        (metrics.BATCH_REFUSED, seen.refused_tracks),
    ):
        if n:  # Ray refuses to count 0
            counter.record(n, model=model_id)


def span_until_now(took_s: float, facts: Mapping[str, str | int]) -> None:
    """Add a span for a batch that has just ended to the trace of one track."""
    now_ns = time.time_ns()
    begun = tracer.start_span("batch", start_time=now_ns - int(took_s * 1e9), attributes=facts)
    begun.end(now_ns)


class Queues:
    """The windows that wait in a replica, which no batch reports while the device is blocked."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def show(self, steps: Iterable[Mapping[str, BatcherMetrics]]) -> None:
        """Record what waits now.

        Args:
            steps: For every step of the replica, model id to snapshot.
        """
        waiting = dict.fromkeys(self._shown, 0)  # a model that was removed has nothing waiting
        for step in steps:
            for model_id, snapshot in step.items():
                waiting[model_id] = waiting.get(model_id, 0) + snapshot.queued_windows
        for model_id, n in waiting.items():
            metrics.BATCH_QUEUED.record(n, model=model_id)
        self._shown = set(waiting)
