"""One real service for all system tests: real Redis, real Ray, real models."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import ray
from ray._private.node import Node

from serve_app.local import own_ray
from serve_app.local.embedded_redis import free_port, is_alive
from tests.system.collector import Collector, running_collector

REPOSITORY = Path(__file__).parents[2]
AFA = [sys.executable, "-c", "from serve_app.cli.main import main; main()"]
running = ExitStack()
PATIENCE_S = 240.0
"""A machine that does other work may answer late."""


class Patient(httpx.HTTPTransport):
    """Sends a request again when the service answers 503 with Retry-After."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        give_up_s = time.monotonic() + PATIENCE_S
        request.read()
        while True:
            answer = super().handle_request(request)
            pause = answer.headers.get("Retry-After")
            if answer.status_code != 503 or pause is None or time.monotonic() > give_up_s:
                return answer
            answer.close()
            time.sleep(int(pause))


@dataclass(frozen=True)
class Service:
    url: str
    keys: dict[str, str]
    pids: dict[str, int]
    data_dir: Path
    up_output: str
    environment: dict[str, str]
    audio_port: int
    answers_while_starting: list[httpx.Response]

    def client(self, tier: str = "pro", *, is_patient: bool = True) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.keys[tier]}"}
        transport = Patient() if is_patient else httpx.HTTPTransport()
        return httpx.Client(base_url=self.url, headers=headers, timeout=240, transport=transport)


@contextmanager
def asking(url: str) -> Iterator[list[httpx.Response]]:
    """Collect the answers to requests while the block runs; at first nothing listens."""
    is_over = threading.Event()
    answers: list[httpx.Response] = []

    def ask() -> None:
        while not is_over.wait(0.3):
            with suppress(httpx.HTTPError):
                answers.append(httpx.post(url, timeout=10))  # the proxy repeats GETs itself

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        thread.join()


@contextmanager
def running_service(data_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Start a new service with `afa up`, and check that `afa down` leaves nothing running."""
    audio_port = free_port()
    environment = os.environ | {
        "AFA_URL_NETWORKS": '["127.0.0.0/8"]',
        "AFA_URL_PORTS": json.dumps([80, 443, audio_port]),
        "COLUMNS": "120",
    }
    environment |= settings or {}
    environment.pop("REDIS_URL", None)
    port = free_port()
    arguments = ["up", "--port", str(port), "--data-dir", str(data_dir)]
    with asking(f"http://127.0.0.1:{port}/v1/no-such-path") as answers:
        done = subprocess.run(
            [*AFA, *arguments],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
    log = data_dir / "afa.log"
    assert done.returncode == 0, (
        done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    )
    session = json.loads((data_dir / "session.json").read_text())
    try:
        yield Service(
            session["url"],
            session["keys"],
            session["pids"],
            data_dir,
            done.stdout,
            environment,
            audio_port,
            answers,
        )
    finally:
        subprocess.run(
            [*AFA, "down", "--data-dir", str(data_dir)], cwd=REPOSITORY, check=True, timeout=300
        )
        alive = [pid for pid in session["pids"].values() if is_alive(pid)]
        assert not alive


@contextmanager
def running_ray(**resources: int) -> Iterator[str]:
    """Connect this process to a new local Ray with two CPUs; yield its address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "120")
        for method in own_ray.UNUSED:
            patch.setattr(Node, method, lambda *_, **__: None)
        try:
            context = ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                num_cpus=2,
                _node_ip_address="127.0.0.1",
                **resources,
            )
            yield context.address_info["gcs_address"]
        finally:
            ray.shutdown()


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with running_collector() as collector:
        yield collector


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Service]:
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "AFA_METRICS_ADDRESS": f"127.0.0.1:{free_port()}",
    }
    with running:  # after Ctrl-C, pytest does not run the teardown hook below
        yield running.enter_context(running_service(tmp_path_factory.mktemp("afa"), settings))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the service after its last test; it would slow down all tests that follow."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        running.close()
