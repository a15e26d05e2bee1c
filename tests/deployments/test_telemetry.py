"""How values reach Ray, and log lines reach Serve's files."""

import io
import logging
from typing import Any, ClassVar

import pytest

from serve_app.deployments import telemetry
from serve_app.deployments.telemetry import RayMetrics, ToServe
from serve_app.domain.telemetry.metrics import (
    CACHE_READS,
    HOLDS,
    METRICS,
    PROVIDER_SECONDS,
    Metric,
)


class Told:
    """Stands in for a metric of Ray, which tests cannot read."""

    values: ClassVar[list[tuple[str, float, dict[str, str]]]] = []

    def __init__(self, name: str, *_: Any) -> None:
        self._name = name

    def _tell(self, value: float, tags: dict[str, str]) -> None:
        self.values.append((self._name, value, tags))

    inc = set = observe = _tell


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, dict[str, str]]]:
    for kind in ("Counter", "Gauge", "Histogram"):
        monkeypatch.setattr(telemetry, kind, type(kind, (Told,), {}))
    monkeypatch.setattr(Told, "values", [])
    return Told.values


def test_every_kind_of_metric_is_told_to_ray(told: list[tuple[str, float, dict[str, str]]]) -> None:
    ray, hit = RayMetrics(), {"space": "features", "outcome": "hit"}
    for _ in range(2):
        ray.record(CACHE_READS, 1, hit)
    ray.record(HOLDS, 0, {})
    ray.record(PROVIDER_SECONDS, 0.5, {"provider": "deezer"})
    assert told == [
        ("afa_cache_reads", 1, hit),
        ("afa_cache_reads", 1, hit),
        ("afa_holds_open", 0, {}),
        ("afa_provider_seconds", 0.5, {"provider": "deezer"}),
    ]


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_ray_takes_every_metric(metric: Metric) -> None:
    RayMetrics().record(metric, 1, dict.fromkeys(metric.labels, "some"))


def test_our_lines_go_into_serves_files_and_keep_their_level() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    serve, ours = logging.getLogger("ray.serve"), logging.getLogger("serve_app.app")
    to_serve = ToServe()
    serve.addHandler(handler)
    ours.addHandler(to_serve)
    try:
        ours.warning("so %s", "it is")
    finally:
        serve.removeHandler(handler)
        ours.removeHandler(to_serve)
    assert written.getvalue() == "WARNING serve_app.app so it is\n"
