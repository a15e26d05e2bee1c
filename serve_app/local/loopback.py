"""Keeps everything that Ray and Serve listen on at the loopback interface.

Ray makes a node named 127.0.0.1 reachable from outside unless clusters are switched off, and a
Serve replica opens its gRPC server on every interface, whatever its settings say.
"""

from collections.abc import Mapping
from typing import Any

NODE_IP = "127.0.0.1"

SETUP_HOOK = "serve_app.local.loopback.bind_to_loopback"
"""Each worker calls it before it imports anything of Serve."""

ENVIRONMENT: Mapping[str, str] = {
    # Despite its name, this keeps a node on the loopback address on all systems.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # A runtime_env could set the same, but then no worker would be prestarted.
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": SETUP_HOOK,
}
"""Read by Ray when it is imported, here and in the processes that it starts."""


def bind_to_loopback() -> None:
    """Let gRPC servers that Python starts in this process listen only on the loopback address."""
    from ray._common import tls_utils

    add_port: Any = tls_utils.add_port_to_grpc_server

    def add_loopback_port(server: Any, address: str) -> int:
        port: int = add_port(server, f"{NODE_IP}:{address.rpartition(':')[2]}")
        return port

    tls_utils.add_port_to_grpc_server = add_loopback_port
