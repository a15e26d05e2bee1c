"""What a replica shows operators: its metrics among Ray's, its log lines among Serve's.

Ray shows metrics on one page for each node, with ``ray_`` before their names, tagged with
deployment and replica. Recording a value takes two microseconds.
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
    """Show metrics and logs of this process from now on; every replica calls this first."""
    redact_logs()
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger().addHandler(ToServe())
    show_with(RayMetrics().record)


class ToServe(logging.Handler):
    """Passes records to Serve's logger, which writes a replica's log files as configured.

    It adds what is known about the request or job, unless the record has it already.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        record.__dict__.update({**known_facts(), **record.__dict__})
        logging.getLogger("ray.serve").handle(record)


class RayMetrics:
    """Makes each of Ray's metrics when ours is first used."""

    def __init__(self) -> None:
        self._made: dict[str, Counter | Gauge | Histogram] = {}

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Record one value; for a counter it must be above 0."""
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
    """Make the Ray metric that shows one of ours."""
    labels = cast("tuple[str]", metric.labels)  # Ray's type means any number of them
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.description, labels)
        case "gauge":
            return Gauge(metric.name, metric.description, labels)
        case "histogram":
            return Histogram(metric.name, metric.description, list(metric.buckets), labels)
