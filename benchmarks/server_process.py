"""A process that serves an application until its stdin ends: how it is launched, and how it serves.

The launcher writes a plan as a line of JSON; the process serves on plain uvicorn or on its own Ray
Serve and prints "ready". Invariant: when it has ended, so have Ray, the replicas and HAProxy.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Any

from fastapi import FastAPI

from serve_app.local.embedded_redis import end_process, is_alive

END_LIMIT_S = 90.0
LISTEN_LIMIT_S = 30.0

UVICORN, LOCAL, THROUGHPUT = "uvicorn", "serve, local", "serve, throughput"
SAME_PRIORITY = {"RAY_worker_niceness": "0"}
"""Ray's workers are by default 15 levels nicer than their parent process; uvicorn is not."""
PROFILES: Mapping[str, Mapping[str, str]] = {
    UVICORN: {},
    LOCAL: SAME_PRIORITY,
    THROUGHPUT: SAME_PRIORITY
    | {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",
    },
}
"""Contender → its environment variables."""


def free_port() -> int:
    """Find a port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for_port(port: int) -> None:
    """Return once something listens on a port.

    Raises:
        OSError: Nothing did in time.
    """
    end_s = time.monotonic() + LISTEN_LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def launched(module: str, plan: Mapping[str, object], profile: str) -> Iterator[int]:
    """Run ``python -m module`` in a separate process until the block ends.

    It gets the plan as a line of JSON and must answer "ready".

    Yields:
        Its process id.
    """
    ports = {
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
    }
    process = subprocess.Popen(  # noqa: S603 - one of our own modules
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | ports | dict(PROFILES[profile]),
    )
    with process:
        try:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("no pipes")
            process.stdin.write(json.dumps(plan) + "\n")
            process.stdin.flush()
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{profile} did not start")
            yield process.pid
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(END_LIMIT_S)


def serve_uvicorn(app: FastAPI, port: int) -> None:
    """Serve from one uvicorn process."""
    import uvicorn

    config = uvicorn.Config(app, port=port, log_level="warning", access_log=False)
    server = uvicorn.Server(config)

    def wait() -> None:
        sys.stdin.read()
        server.should_exit = True

    Thread(target=wait, daemon=True).start()
    say_ready()
    server.run()


def serve_ray(bind: Callable[[], Any], name: str, port: int) -> None:
    """Serve the application from ``bind`` behind Serve's proxy.

    Args:
        bind: Makes the application, once Ray runs.
        name: Name of the application.
        port: Port on loopback.
    """
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions

    from serve_app.local.processes import descendants

    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        num_cpus=2,
        _node_ip_address="127.0.0.1",
    )
    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options=HTTPOptions(host="127.0.0.1", port=port, keep_alive_timeout_s=75),
        )
        serve.run(bind(), name=name, route_prefix="/")
        say_ready()
        sys.stdin.read()
    finally:
        started = descendants(os.getpid())
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
        for pid in started.values():  # HAProxy may outlive its manager
            if is_alive(pid):
                end_process(pid)


def say_ready() -> None:
    """Tell the parent to continue."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
