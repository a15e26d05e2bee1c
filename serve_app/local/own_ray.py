"""A Ray of this command's own on this machine, which ends with it."""

import logging
import os
import secrets
import warnings

from serve_app.local import loopback


def start(n_cpus: int) -> None:
    """Start Ray on the loopback interface and connect to it.

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
    import ray

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
