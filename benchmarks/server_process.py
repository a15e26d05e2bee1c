"""An application on plain uvicorn or on a Ray Serve of its own, in this process, until stdin ends.

Invariant: when it has ended, so have Ray, the replicas and HAProxy.
"""

import os
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

from fastapi import FastAPI

from serve_app.local.redis import end_process, is_alive


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
    """Serve what ``bind`` gives behind Serve's proxy.

    Args:
        bind: Makes the application, once Ray runs.
        name: Of the application.
        port: On loopback.
    """
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    from ray import serve
    from ray.serve.config import HTTPOptions

    from serve_app.local.service import descendants

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
    """Tell the parent to go on."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
