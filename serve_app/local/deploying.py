"""Deploys the application on a running Ray, in a process that ends once every part is up.

So the service's own process, which stays, loads neither torch nor Serve.
"""

import argparse
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
import yaml
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client

from serve_app.app import bind
from serve_app.composition.profile import AppArgs
from serve_app.local import loopback
from serve_app.local.service import POLL_S, say

APP_NAME = "afa"


def deploy(config: dict[str, Any], host: str, port: int) -> None:
    """Start Serve and let it start every part; it continues after this process has ended.

    Args:
        config: The Serve file.
        host: Address at which the service accepts requests.
        port: TCP port.
    """
    options = config["http_options"] | {"host": host, "port": port}
    with suppress(TimeoutError):  # the proxy is slow; the waiting process allows it more time
        serve.start(
            proxy_location=config["proxy_location"],
            http_options=HTTPOptions(**options),
            logging_config=config["logging_config"],
        )
    app_config = config["applications"][0]
    overrides = {
        row["name"]: {name: value for name, value in row.items() if name != "name"}
        for row in app_config["deployments"]
    }
    app = bind(AppArgs.model_validate(app_config["args"]), overrides)
    target = serve.RunTarget(
        app, APP_NAME, app_config["route_prefix"], app_config["logging_config"]
    )
    serve.run_many([target], wait_for_applications_running=False)


def wait_deployed() -> bool:
    """Report each part that is up; return whether all started, False as soon as one cannot.

    It asks the controller only for the states: `serve.status` pickles a router again for each part,
    which takes a fifth of a second per call.
    """
    client: Any = _get_global_client()
    reported: set[str] = set()
    while True:
        deployed = client.get_serve_status(APP_NAME)
        for part in deployed.deployment_statuses:
            if part.status == "HEALTHY" and part.name not in reported:
                reported.add(part.name)
                say(f"  {part.name} is up")
        if deployed.app_status.status == "RUNNING":
            return True
        if deployed.app_status.status == "DEPLOY_FAILED":
            for part in deployed.deployment_statuses:
                if part.status == "DEPLOY_FAILED":
                    say(f"  {part.name} does not start: {last_line(part.message)}")
            say(deployed.app_status.message)
            return False
        time.sleep(POLL_S)


def last_line(trace: str) -> str:
    """Return the error that a traceback ends with."""
    return trace.strip().rpartition("\n")[2]


def end_with_the_service() -> None:
    """End this process when the service dies or closes the pipe to this standard input."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> None:
    """Deploy; exit with status 1 if a part does not start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    arguments = parser.parse_args()
    threading.Thread(target=end_with_the_service, daemon=True).start()
    ray.init(
        address=arguments.address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address=loopback.NODE_IP,
    )
    config = yaml.safe_load(arguments.config.read_text(encoding="utf-8"))
    deploy(config, arguments.host, arguments.port)
    sys.exit(0 if wait_deployed() else 1)


if __name__ == "__main__":
    main()
