"""What is installed on each node of a Ray cluster."""

import logging
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PACKAGES = ("afa", "ray", "torch")
ANSWER_LIMIT_S = 60.0


class NoClusterError(RuntimeError):
    """No Ray runs on this machine, or it does not let us in."""


def installed() -> dict[str, str]:
    """Give the versions that matter of the interpreter that runs this."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def versions_by_node() -> Mapping[str, Mapping[str, str]]:
    """Ask every living node of the cluster that this machine belongs to.

    Returns:
        Node address to package to version.

    Raises:
        NoClusterError: This machine belongs to none, or a node does not answer.
    """
    try:
        ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise NoClusterError(str(error).partition("\n")[0]) from error
    try:
        ask = ray.remote(num_cpus=0)(installed)
        asked = {
            node["NodeManagerAddress"]: ask.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote()
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        }
        answers = ray.get(list(asked.values()), timeout=ANSWER_LIMIT_S)
    except ray.exceptions.RayError as error:
        raise NoClusterError(str(error).partition("\n")[0]) from error
    finally:
        ray.shutdown()
    return dict(zip(asked, answers, strict=True))
