"""A Ray of this command's own on this machine, which ends with it."""

import logging
import os
import secrets
import signal
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from serve_app.local import loopback
from serve_app.local.processes import descendants

HEADS = ("raylet", "gcs_server")
"""Nothing of Ray goes on without them, and nothing of Ray starts them again."""

QUIET: Mapping[str, str] = {
    # Serve's own 100 ms of both are most of what it takes at rest. The first delays each step of a
    # start, of a scaling and of a replacement, by a quarter of a second on average; the second adds
    # at most five seconds to the ten after which Ray shows a metric.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "5000",
    # Each worker looks for signals a hundred times a second, and would note each look.
    "RAY_event_stats": "0",
}
"""What has Ray do less where nothing happens; each can be set otherwise."""

UNUSED = ("start_api_server", "start_log_monitor", "start_monitor")
"""Methods that start what nobody asks here: the dashboard's server, which is switched off and runs
all the same, what prints workers' logs in a terminal, and what adds machines to a cluster."""


def start(n_cpus: int) -> Mapping[str, int]:
    """Start Ray on the loopback interface, connect to it, and give its heads, name to id.

    Nothing of Ray may be imported before: it reads the environment then.
    """
    # Without the token Ray's ports would run the code of every user of this machine.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= loopback.ENVIRONMENT
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A busy machine takes a while.
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray
    from ray._private.node import Node

    node: Any = Node
    for method in UNUSED:
        setattr(node, method, lambda *_, **__: None)
    with warnings.catch_warnings():
        # Ray forks to start other programs, in which nothing of Lance goes on.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            num_cpus=n_cpus,
            _node_ip_address=loopback.NODE_IP,
        )
    started = descendants(os.getpid())
    return {name: pid for name, pid in started.items() if name.partition("-")[0] in HEADS}


def kill_rest() -> None:
    """End what is left of a Ray whose head has ended: asked to, it would wait for the head."""
    for pid in descendants(os.getpid()).values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
