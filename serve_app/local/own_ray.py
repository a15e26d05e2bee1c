"""A private Ray for this command on this machine, which ends with it."""

import logging
import os
import secrets
import signal
import stat
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from serve_app.local import loopback
from serve_app.local.processes import descendants

HEADS = ("raylet", "gcs_server")
"""Processes that Ray cannot run without, and does not restart."""

QUIET: Mapping[str, str] = {
    # Serve's default of 100 ms for both is most of its load at rest. The first delays each step of
    # a start, a scaling and a replacement by a quarter of a second on average; the second adds at
    # most five seconds to the ten after which Ray shows a metric.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "5000",
    # Each worker checks for signals a hundred times a second, and would record each check.
    "RAY_event_stats": "0",
    # Without it, nothing limits the files of standard error, which hold every line of the logs.
    "RAY_ROTATION_MAX_BYTES": str(64 * 2**20),
}
"""Settings that reduce Ray's work at rest, and its logs; the environment can override each."""

UNUSED = ("start_api_server", "start_log_monitor", "start_monitor")
"""Methods that start what is not needed here: the dashboard's server, which runs even if switched
off, what prints workers' logs in a terminal, and what adds machines to a cluster."""


def start(n_cpus: int) -> Mapping[str, int]:
    """Start Ray on the loopback interface, connect to it, and return its heads, name to pid.

    Nothing of Ray may be imported before, since it reads the environment on import.
    """
    # Without the token, Ray's ports would run code from every user of this machine.
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
        # Ray only forks to start other programs, which do not use Lance.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            num_cpus=n_cpus,
            _node_ip_address=loopback.NODE_IP,
            _temp_dir=str(private_folder() / "ray"),
        )
    started = descendants(os.getpid())
    return {name: pid for name, pid in started.items() if name.partition("-")[0] in HEADS}


def private_folder() -> Path:
    """Return a folder that only this user can enter.

    Ray lets every user write to its own folders below, so that each could replace its sockets.
    """
    parent = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    folder = parent / f"afa-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="afa-", dir=parent))
    folder.chmod(0o700)
    return folder


def kill_rest() -> None:
    """Kill what is left of a Ray whose head has ended; a normal stop would wait for the head."""
    for pid in descendants(os.getpid()).values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
