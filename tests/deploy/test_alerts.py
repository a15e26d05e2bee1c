"""The files in deploy/ fit what the service exports, and its pages."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.domain.telemetry.metrics import METRICS

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
DASHBOARD = ROOT / "deploy/grafana/afa.json"
PAGE = ROOT / "docs/operating/alerts.md"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
RAYS_OWN = {
    "ray_memory_manager_worker_eviction_total",
    "ray_node_cpu_utilization",
    "ray_node_mem_total",
    "ray_node_mem_used",
    "ray_serve_deployment_queued_queries",
    "ray_serve_deployment_replica_healthy",
    "ray_serve_num_http_requests_total",
}
"""Names as Ray 2.60 exports them, with the labels that are used."""

FROM_RAY = {"deployment", "replica", "application", "le"}
NAME = re.compile(r"\b(ray_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"by \(([^)]*)\)")
PROMETHEUS_OWN = re.compile(r"\b(up|ALERTS)\{")
LIMIT = re.compile(r"> ([\d.]+)")


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    """Return all panels except row headings."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for rule in alerts():
        yield rule["expr"]
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])


def test_every_alert_fires_when_its_page_says() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Prometheus")
    ran = subprocess.run(
        [promtool, "test", "rules", str(Path(__file__).with_name("alerts.test.yaml"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alerts_and_dashboard_name_what_is_exported() -> None:
    ours = {
        f"ray_{metric.name}{suffix}": set(metric.labels) | FROM_RAY
        for metric in METRICS.values()
        for suffix in SUFFIXES[metric.kind]
    }
    for expression in expressions():
        names = NAME.findall(expression)
        assert names or PROMETHEUS_OWN.search(expression), expression
        for name, matchers in names:
            if not name.startswith("ray_afa_"):
                assert name in RAYS_OWN, name
                continue
            assert name in ours, name
            matched = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", matchers))
            grouped = {
                label.strip() for group in GROUPED.findall(expression) for label in group.split(",")
            }
            assert matched | (grouped - {""}) <= ours[name], expression


def test_every_metric_of_ours_is_on_the_dashboard_or_has_an_alert() -> None:
    text = "\n".join(expressions())
    unseen = {name for name in METRICS if f"ray_{name}" not in text}
    assert unseen <= {"afa_batch_seconds", "afa_batch_device_seconds", "afa_batch_padding_windows"}


def test_a_panel_turns_red_where_an_alert_watches() -> None:
    watched = {
        (name, float(limit))
        for rule in alerts()
        for name, _ in NAME.findall(rule["expr"])
        for limit in LIMIT.findall(rule["expr"])
    }
    red = 0
    for panel in panels():
        names = {name for target in panel["targets"] for name, _ in NAME.findall(target["expr"])}
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {"steps": []})["steps"]
        for step in steps[1:] if names else []:
            assert any((name, step["value"]) in watched for name in names), panel["title"]
            red += 1
    assert red


def test_panels_lie_beside_each_other() -> None:
    found = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        x, y, w, h = (panel["gridPos"][side] for side in "xywh")
        assert x + w <= 24, panel["title"]
        cells = {(x + column, y + line) for column in range(w) for line in range(h)}
        assert not taken & cells, panel["title"]
        taken |= cells


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    sections = set(re.findall(r"^## (Afa\w+)$", PAGE.read_text(), re.MULTILINE))
    assert {rule["alert"] for rule in alerts()} == sections
    for rule in alerts():
        page = f"{PAGE.relative_to(ROOT)}#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == page
        assert rule["labels"]["severity"] in {"page", "ticket"}
