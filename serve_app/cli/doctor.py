"""`afa doctor`: what this machine and the installation's storage offer, and what to fix."""

import asyncio
import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from configs.settings import Settings
from models.checkpoints.cards import CardError
from serve_app.cli.environment import ConfigOption, console
from serve_app.cli.examination.finding import ORDINARY, Finding, attempt, fault
from serve_app.cli.examination.machine import of_decoder, of_device, of_room
from serve_app.cli.examination.redis_roles import of_redis
from serve_app.cli.examination.storage import of_storage
from serve_app.cli.models import digests, serving_ids
from serve_app.cli.service import remaining
from serve_app.composition.files import (
    LocalFiles,
    NoPepperError,
    NotSharedError,
    require_shared,
)
from serve_app.local import processes

CLOSE_PORTS = "use a firewall to keep others out, or restart: `afa down`, then `afa up`"
ALIKE = 0.85
"""Least similarity of a misspelt name to a setting; Kubernetes' own, as `AFA_PORT`, have less."""

ASK_FOR_ONE = (
    "anyone who reaches its ports can run code: restart it with RAY_AUTH_MODE=token and "
    "RAY_AUTH_TOKEN"
)


def doctor(config: ConfigOption = None) -> None:
    """Check this machine and the storage behind it, and say what to fix.

    The exit status is 1 if anything is wrong; advice alone does not count.
    """
    settings = Settings()
    n_faults = 0
    for finding in findings(settings, config):
        style = "red" if finding.is_fault else "yellow" if finding.remedy else ""
        console.print(f"{finding.part:<10} {finding.state}", style=style, highlight=False)
        if finding.remedy:
            console.print(f"           {finding.remedy}", style="dim", highlight=False)
        n_faults += finding.is_fault
    if n_faults:
        raise typer.Exit(1)


def of_names() -> Iterator[Finding]:
    """Check whether a variable is almost a setting's name: a misspelt one has no effect."""
    known = [f"AFA_{name.upper()}" for name in Settings.model_fields]
    for name in sorted(os.environ):
        meant = difflib.get_close_matches(name.upper(), known, n=1, cutoff=ALIKE)
        if meant and name.upper() not in known:
            yield fault("settings", f"{name} does nothing", f"is {meant[0]} meant?")


def findings(settings: Settings, config: Path | None) -> Iterator[Finding]:
    """Check everything; what is too broken to check is reported, and the rest is checked."""
    files = LocalFiles(settings.data_dir.absolute())
    yield Finding("python", sys.version.split()[0])
    for part, look in (
        ("settings", of_names),
        ("device", partial(of_device, settings)),
        ("decoder", of_decoder),
        ("disk", partial(of_room, settings, files)),
        ("ledger", partial(of_redis, settings, files)),
        ("storage", partial(of_storage, settings, files)),
        ("ports", partial(of_ports, settings, files)),
        ("cluster", partial(of_cluster, settings)),
        ("models", partial(of_checkpoints, settings, config)),
    ):
        yield from attempt(part, look)


def of_ports(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Check who can reach the ports of the service, or of the Ray node, on this machine."""
    session = files.read_session()
    if session is None and files.session_path.exists():
        remedy = "end the processes of the service, if any run, and `afa up` writes it again"
        found = f"{files.session_path} is torn, or another folder's: no command finds the service"
        yield fault("ports", found, remedy)
    service = remaining(files).get("service")
    if session is not None and service is not None:
        yield from of_service(session, service)
    elif settings.redis_url is not None and (raylets := processes.raylets()):
        for raylet in raylets:
            if not processes.has_token(raylet):
                yield fault("ports", f"raylet {raylet} asks for no token", ASK_FOR_ONE)
        ports = sorted({one.port for one in processes.listeners(processes.rays()) if one.is_open})
        if ports:
            yield Finding(
                "ports",
                f"Ray's {len(ports)} are open to other machines: {', '.join(map(str, ports))}",
                "let nodes alone reach them; customers, the one of the proxy, through the balancer",
            )


def of_service(session: Mapping[str, Any], service: int) -> Iterator[Finding]:
    """Check who can reach a running service's ports besides those of its API and metrics."""
    public, metrics = (urlsplit(session[page]).port for page in ("url", "metrics"))
    own = processes.listeners([service, *processes.descendants(service).values()])
    if is_public := any(one.is_open and one.port == public for one in own):
        yield Finding("ports", f"{public} takes requests from other machines")
    if any(one.is_open and one.port == metrics for one in own):
        yield Finding("ports", f"{metrics} shows the metrics to other machines, as asked for")
        own = [one for one in own if one.port != metrics]
    inner = [one for one in own if one.port != public]
    if others := [f"{one.port} ({one.process})" for one in inner if one.is_open]:
        yield fault("ports", f"open to other machines: {', '.join(others)}", CLOSE_PORTS)
    elif inner:
        what = "the other" if is_public else f"{public} and"
        yield Finding("ports", f"{what} {len(inner)} are open to this machine alone")


def of_cluster(settings: Settings) -> Iterator[Finding]:
    """Check what nodes must share and must not leave open."""
    if settings.redis_url is None:
        return
    try:
        require_shared(settings)
    except NoPepperError as error:
        yield fault("cluster", "keys hang on one node", str(error))
    except NotSharedError as error:
        yield Finding("cluster", "one machine only", str(error))
        return
    if os.environ.get("RAY_AUTH_MODE") != "token" or not os.environ.get("RAY_AUTH_TOKEN"):
        yield fault(
            "cluster",
            "Ray's ports have no token",
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN: anyone who reaches them can run code",
        )
    if urlsplit(settings.redis_url).password is None:
        yield Finding("cluster", "the ledger has no password", "set one, and name it in the URL")
    yield from of_nodes()


def of_nodes() -> Iterator[Finding]:
    """Compare what is installed on the nodes of the cluster that this machine belongs to."""
    from serve_app.local.nodes import NoClusterError, versions_by_node

    try:
        by_node = versions_by_node()
    except NoClusterError as error:
        yield Finding("nodes", f"not compared: {error}", "run this on a node of the cluster")
        return
    for package in sorted({package for versions in by_node.values() for package in versions}):
        nodes: dict[str, list[str]] = {}
        for node, versions in by_node.items():
            nodes.setdefault(versions.get(package, "missing"), []).append(node)
        state = "; ".join(f"{version} on {', '.join(of)}" for version, of in nodes.items())
        if len(nodes) > 1:
            yield fault("nodes", f"{package} {state}", "install the same on every node")
        else:
            yield Finding("nodes", f"{package} {next(iter(nodes))} on all {len(by_node)}")


def of_checkpoints(settings: Settings, config: Path | None) -> Iterator[Finding]:
    """Compare every checkpoint in use with its digest."""
    try:
        serving = asyncio.run(serving_ids(settings))
    except ORDINARY:
        serving = {}  # reported for the ledger
    try:
        for model_id, told in digests(settings, config, serving):
            if told:
                yield fault("models", told, f"`afa models pull {model_id}` fetches it again")
            else:
                yield Finding("models", f"{model_id} verified")
    except CardError as error:
        yield fault("models", str(error), "see `afa models list`")
