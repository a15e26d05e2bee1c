"""What a replica tells operators: its metrics among Ray's, its log lines among Serve's.

Ray shows metrics on one page for each node, with ``ray_`` before their names, tagged with
deployment and replica. A value costs two microseconds.
"""

import logging
from collections.abc import Mapping
from typing import cast

from ray.serve.metrics import Counter, Gauge, Histogram

from serve_app.domain.redaction import redact_logs
from serve_app.domain.telemetry.facts import known_facts
from serve_app.domain.telemetry.metrics import Metric, show_with

OURS = ("serve_app", "afa", "pipelines", "models")


def tell_operators() -> None:
    """Have metrics and logs of this process shown from now on; every replica begins so."""
    redact_logs()
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger().addHandler(ToServe())
    show_with(RayMetrics().record)


class ToServe(logging.Handler):
    """Gives records to Serve's logger, which writes a replica's log files as configured.

    With them goes what is known of the request or job, where the record does not say so itself.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Give one record on."""
        record.__dict__.update({**known_facts(), **record.__dict__})
        logging.getLogger("ray.serve").handle(record)


class RayMetrics:
    """Makes Ray's metrics as ours are first used."""

    def __init__(self) -> None:
        self._made: dict[str, Counter | Gauge | Histogram] = {}

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Take one value; a counter's is above 0."""
        ray = self._made.get(metric.name)
        if ray is None:
            ray = self._made[metric.name] = made(metric)
        match ray:
            case Counter():
                ray.inc(value, dict(labels))
            case Gauge():
                ray.set(value, dict(labels))
            case Histogram():
                ray.observe(value, dict(labels))


def made(metric: Metric) -> Counter | Gauge | Histogram:
    """Make the metric of Ray that shows one of ours."""
    labels = cast("tuple[str]", metric.labels)  # Ray means any number of them
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.description, labels)
        case "gauge":
            return Gauge(metric.name, metric.description, labels)
        case "histogram":
            return Histogram(metric.name, metric.description, list(metric.buckets), labels)
