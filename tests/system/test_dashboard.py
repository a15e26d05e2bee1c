"""Scrape configuration, alerts and dashboard as shipped, with a real Prometheus and service."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from serve_app.local.embedded_redis import free_port
from tests.system.conftest import REPOSITORY, Service

PROMETHEUS = shutil.which("prometheus")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.redis,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
]

DEPLOY = REPOSITORY / "deploy"
LIMIT_S = 60.0


@pytest.fixture
def ask(service: Service, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start a Prometheus on the service, as shipped but faster; yield a function to query it."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "one-machine.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yaml")]
    (static,) = config["scrape_configs"][0]["static_configs"]
    static["targets"] = [service.environment["AFA_METRICS_ADDRESS"]]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    options = [f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [str(PROMETHEUS), f"--config.file={file}", *options], stdout=log, stderr=log
        )
    with httpx.Client(base_url=f"http://{address}/api/v1", timeout=10) as client:

        def ask(path: str, **params: str) -> Any:
            response = client.get(path, params=params)
            if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                response.raise_for_status()
            answer = response.json()
            assert answer["status"] == "success", answer
            return answer["data"]

        yield ask
    server.terminate()
    server.wait(30)


def patiently(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        with suppress(httpx.HTTPError):  # it is starting
            if is_so():
                return
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_prometheus_as_shipped_sees_the_service(ask: Callable[..., Any]) -> None:
    def value(expression: str) -> list[Any]:
        rows: list[Any] = ask("/query", query=expression)["result"]
        return rows

    patiently(lambda: value('up{job="afa"} == 1'))
    patiently(lambda: value('ray_afa_batch_windows_count{deployment="Embedding"}'))

    def rules() -> list[Any]:
        (group,) = ask("/rules")["groups"]
        found: list[Any] = group["rules"]
        return found

    patiently(lambda: all(rule["health"] != "unknown" for rule in rules()))
    for rule in rules():
        assert (rule["health"], rule["state"]) in (("ok", "inactive"), ("ok", "pending")), rule

    panels = json.loads((DEPLOY / "grafana" / "afa.json").read_text())["panels"]
    shown = {
        panel["title"]
        for panel in panels
        for target in panel.get("targets", [])
        if value(target["expr"].replace("$__rate_interval", "1m"))
    }
    gauges = {
        "In line and running",
        "Oldest wait by lane",
        "Longest wait",
        "Unarchived",
        "Open holds",
    }
    checkpoints = {"Replicas that have each checkpoint loaded", "From loaded to ready"}
    rays = {"Replicas alive", "Requests in line", "Memory and processors of nodes"}
    assert gauges | checkpoints | rays | {"Alerts firing", "Nodes"} <= shown  # rates come later
