"""Finds out what is installed on each node of a Ray cluster."""

import json
import logging
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PACKAGES = ("afa", "ray", "torch")
ANSWER_LIMIT_S = 60.0


class NoClusterError(RuntimeError):
    """No Ray runs on this machine, or it refuses the connection."""


def installed() -> dict[str, str]:
    """Return the versions that matter, of this interpreter and its packages."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def versions_by_node() -> Mapping[str, Mapping[str, str]]:
    """Ask every live node of the cluster that this machine belongs to.

    A separate process asks: Ray waits for minutes for a head that does not answer, and may end the
    process that waits.

    Returns:
        Node address to package to version.

    Raises:
        NoClusterError: This machine belongs to no cluster, or a node does not answer.
    """
    asking = [sys.executable, "-m", __name__]
    try:
        asked = subprocess.run(  # noqa: S603  our own interpreter and module
            asking, capture_output=True, text=True, timeout=ANSWER_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise NoClusterError(f"the cluster did not answer in {ANSWER_LIMIT_S:g} s") from error
    if asked.returncode:
        lines = asked.stderr.strip().splitlines()
        raise NoClusterError(lines[-1] if lines else "Ray ended without an answer")
    answer: dict[str, dict[str, str]] = json.loads(asked.stdout)
    return answer


def ask_nodes() -> dict[str, dict[str, str]]:
    """Return what `versions_by_node` returns, waiting as long as Ray does."""
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    ask = ray.remote(num_cpus=0)(installed)
    asked = {
        node["NodeManagerAddress"]: ask.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    }
    return dict(zip(asked, ray.get(list(asked.values())), strict=True))


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(ask_nodes()))
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        sys.exit(str(error).partition("\n")[0])
