"""What the batchers of a replica do, as Ray metrics.

Ray shows them on the metrics page of each node with ``ray_`` before their names, tagged with
deployment, replica and application. Invariant: some records per batch and one per track, of some
microseconds each; nothing per window.
"""

from collections.abc import Iterable, Mapping

from ray.serve.metrics import Counter, Gauge, Histogram

from pipelines.batching.batcher import BatcherMetrics, Observation

TAGS = ("model",)
WINDOWS = [float(1 << power) for power in range(11)]
SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60]
"""Upper bounds of buckets."""


class BatchMetrics:
    """The metrics of all batchers of one replica, told apart by model id."""

    def __init__(self) -> None:
        self._windows = Histogram(
            "afa_batch_windows", "Windows in a forward, without padding.", WINDOWS, TAGS
        )
        self._queue_s = Histogram(
            "afa_batch_queue_seconds",
            "From the submission of a track to the start of its first batch.",
            SECONDS,
            TAGS,
        )
        self._device_s = Histogram(
            "afa_batch_device_seconds", "Device time of a forward.", SECONDS, TAGS
        )
        self._batch_s = Histogram(
            "afa_batch_seconds",
            "From the start of a batch to its outputs, host work included.",
            SECONDS,
            TAGS,
        )
        self._padding = Counter(
            "afa_batch_padding_windows", "Rows of zeros added to reach an allowed size.", TAGS
        )
        self._dropped = Counter(
            "afa_batch_dropped_windows", "Queued windows whose caller had gone.", TAGS
        )
        self._failed = Counter("afa_batch_failed_tracks", "Tracks that failed.", TAGS)
        self._refused = Counter("afa_batch_refused_tracks", "Tracks that found a full queue.", TAGS)
        self._queued = Gauge("afa_batch_queued_windows", "Windows that wait.", TAGS)
        self._shown: set[str] = set()

    def observe(self, model_id: str, seen: Observation) -> None:
        """Record what has happened in a batcher."""
        tags = {"model": model_id}
        for queue_s in seen.queue_s:
            self._queue_s.observe(queue_s, tags)
        if seen.windows:
            self._windows.observe(seen.windows, tags)
            self._device_s.observe(seen.device_s, tags)
        if seen.batch_s:
            self._batch_s.observe(seen.batch_s, tags)
        for counter, n in (
            (self._padding, seen.padded_windows),
            (self._dropped, seen.dropped_windows),
            (self._failed, seen.failed_tracks),
            (self._refused, seen.refused_tracks),
        ):
            if n:  # Ray refuses to count nothing
                counter.inc(n, tags)

    def show_queues(self, steps: Iterable[Mapping[str, BatcherMetrics]]) -> None:
        """Set what waits now, which no batch tells of while the device stands still.

        Args:
            steps: Of every step of the replica: model id to snapshot.
        """
        waiting = dict.fromkeys(self._shown, 0)  # a model that has gone has nothing waiting
        for step in steps:
            for model_id, metrics in step.items():
                waiting[model_id] = waiting.get(model_id, 0) + metrics.queued_windows
        for model_id, n in waiting.items():
            self._queued.set(n, {"model": model_id})
        self._shown = set(waiting)
