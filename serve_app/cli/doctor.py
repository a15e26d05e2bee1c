"""`afa doctor`: what this machine and the storage of an installation offer, and what to mend."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import typer

from configs.settings import Settings
from models.checkpoints.cards import CardError
from pipelines.audio.decode import DecoderUnavailableError, active_walls
from serve_app.cli.environment import ConfigOption, console
from serve_app.cli.models import digests
from serve_app.composition.files import (
    LocalFiles,
    NotRunningError,
    NotSharedError,
    checkpoint_mirror,
    require_shared,
    tracks_mirror,
)
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.local import processes
from serve_app.local.embedded_redis import LocalRedisError, find_binary, is_alive
from serve_app.store.client import Store, connect
from serve_app.store.objects import ObjectStore

LEDGER_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "aof-load-truncated": "no",
}
"""Each of another value may lose or double what was acknowledged."""

LEAST_FREE_GB, COMFORTABLE_GB = 2, 20
MOST_SKEW_S = 5.0

CLOSE_PORTS = "a firewall has to keep them from others, or start anew: `afa down`, then `afa up`"
ASK_FOR_ONE = (
    "whoever reaches its ports runs code: start it anew with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        part: What it belongs to.
        state: How it is.
        remedy: What to do; "" where nothing has to be done.
        is_fault: Whether the installation is wrong as it is; else the remedy is advice.
    """

    part: str
    state: str
    remedy: str = ""
    is_fault: bool = False


def fault(part: str, state: str, remedy: str) -> Finding:
    """Make a finding of something wrong."""
    return Finding(part, state, remedy, is_fault=True)


def doctor(config: ConfigOption = None) -> None:
    """Check this machine and the storage behind it, and say what to mend.

    Exits with status 1 if anything is wrong; advice alone does not count.
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


def findings(settings: Settings, config: Path | None) -> Iterator[Finding]:
    """Look at everything."""
    files = LocalFiles(settings.data_dir.absolute())
    yield Finding("python", sys.version.split()[0])
    yield of_device(settings)
    yield from of_decoder()
    yield of_disk(files.data_dir)
    yield from asyncio.run(of_redis(settings, files))
    yield from of_places(settings, files)
    yield from of_ports(settings, files)
    yield from of_cluster(settings)
    yield from of_publications(settings, files)
    yield from of_checkpoints(settings, config)


def of_device(settings: Settings) -> Finding:
    """Look at the GPU, its driver and the build of torch."""
    import torch

    build = f"torch {torch.__version__}, built for " + (
        f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
    )
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        return Finding("device", f"{build}; {', '.join(names)}")
    has_driver = Path("/proc/driver/nvidia/version").exists()
    is_wanted = settings.device.startswith("cuda")
    if not has_driver and not is_wanted:
        return Finding("device", f"{build}; no GPU")
    return fault(
        "device",
        f"{build}; a GPU is {'asked for' if is_wanted else 'there'}, and CUDA finds none",
        "look at nvidia-smi (driver too old for this CUDA?), CUDA_VISIBLE_DEVICES, and whether "
        "torch is a CPU build",
    )


def of_decoder() -> Iterator[Finding]:
    """Look at the walls around the decoder of untrusted audio."""
    try:
        for wall, state in active_walls().items():
            yield Finding("decoder", f"{wall}: {state}")
    except DecoderUnavailableError as error:
        yield fault("decoder", str(error), "no audio is taken until this is mended")


def of_disk(data_dir: Path) -> Finding:
    """Look at the room of the disk that the data folder lies on, or would."""
    folder = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    if not os.access(folder, os.W_OK):
        return fault("disk", f"{folder} cannot be written to", "name another with --data-dir")
    free_gb = shutil.disk_usage(folder).free / 1e9
    state = f"{free_gb:.0f} GB free at {folder}"
    if free_gb < LEAST_FREE_GB:
        return fault("disk", state, "a full disk stops the ledger: make room")
    return Finding("disk", state, "" if free_gb > COMFORTABLE_GB else "uploads and logs take room")


async def of_redis(settings: Settings, files: LocalFiles) -> list[Finding]:
    """Look at both roles of Redis."""
    found: list[Finding] = []
    if settings.redis_url is None:
        try:
            found.append(Finding("ledger", f"embedded: {find_binary()}"))
        except LocalRedisError as error:
            found.append(fault("ledger", str(error), "or set AFA_REDIS_URL"))
    for role, url in (("ledger", files.ledger_url), ("cache", files.cache_url)):
        try:
            store = connect(url(settings))
        except NotRunningError:
            continue  # embedded, and not started
        try:
            await store.command("PING")
            found.append(Finding(role, "answers"))
            if role == "ledger":
                found += await of_ledger(store, settings)
        except ServiceUnavailableError:
            remedy = "is it running, and are address and password right?"
            is_own = settings.redis_url is None  # embedded, and ended
            found.append(Finding(role, "no answer", "" if is_own else remedy, not is_own))
        finally:
            await store.close()
    return found


def of_places(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Look at every store of objects."""
    for name, url in (
        ("objects", files.object_store_url(settings)),
        ("journal", files.journal_store_url(settings)),
        ("library", files.library_url(settings)),
    ):
        parts = urlsplit(url)
        place = parts._replace(query="").geturl()
        if parts.scheme == "file" and not Path(unquote(parts.path)).exists():
            yield Finding(name, f"{place} is not there yet")
            continue
        try:
            asyncio.run(ObjectStore(url).ping())
        except ServiceUnavailableError as error:
            why = str(error.__cause__).partition("\n")[0]
            remedy = "is the bucket there, and are the AWS_* credentials?"
            yield fault(name, f"{place}: {why}", remedy)
        else:
            yield Finding(name, f"{place} can be written to")


async def of_ledger(store: Store, settings: Settings) -> list[Finding]:
    """Look at what keeps credits safe: the ledger's settings, its replicas and its clock."""
    found = []
    for name, wanted in LEDGER_SETTINGS.items() if not store.is_cluster else ():
        told = await store.command("CONFIG", "GET", name)
        pairs = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
        value = {_text(key): _text(of) for key, of in pairs}.get(name)
        if value is None:
            found.append(Finding("ledger", f"{name} cannot be read", f"see that it is {wanted}"))
        elif value != wanted:
            remedy = f"CONFIG SET {name} {wanted}, and in its file, for its next start"
            found.append(fault("ledger", f"{name} is {value}", remedy))
    if settings.redis_url is not None and not store.is_cluster:
        told = await store.command("INFO", "replication")
        if isinstance(told, dict) and not told.get("connected_slaves"):
            found.append(
                Finding("ledger", "has no replica", "a lost machine loses the newest credits")
            )
    skew_s = await store.now_ms() / 1000 - time.time()
    if abs(skew_s) > MOST_SKEW_S:
        found.append(fault("ledger", f"its clock differs by {skew_s:.0f} s", "keep clocks by NTP"))
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def of_ports(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Look at who can reach the ports of the service, or of the node of Ray, on this machine."""
    session = files.read_session()
    if session is not None and is_alive(session["pids"]["service"]):
        service: int = session["pids"]["service"]
        public = urlsplit(session["url"]).port
        own = processes.listeners([service, *processes.descendants(service).values()])
        if is_public := any(one.is_open and one.port == public for one in own):
            yield Finding("ports", f"{public} takes requests from other machines")
        inner = [one for one in own if one.port != public]
        if others := [f"{one.port} ({one.process})" for one in inner if one.is_open]:
            yield fault("ports", f"open to other machines: {', '.join(others)}", CLOSE_PORTS)
        elif inner:
            what = "the other" if is_public else f"{public} and"
            yield Finding("ports", f"{what} {len(inner)} are open to this machine alone")
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


def of_cluster(settings: Settings) -> Iterator[Finding]:
    """Look at what nodes must share and must not leave open."""
    if settings.redis_url is None:
        return
    try:
        require_shared(settings)
    except NotSharedError as error:
        yield Finding("cluster", "one machine only", str(error))
        return
    if os.environ.get("RAY_AUTH_MODE") != "token" or not os.environ.get("RAY_AUTH_TOKEN"):
        yield fault(
            "cluster",
            "Ray's ports have no token",
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN: whoever reaches them runs code",
        )
    if settings.key_pepper is None:
        yield fault("cluster", "no AFA_KEY_PEPPER", "each node would make one of its own")
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


def of_publications(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Compare what is published for all nodes with what this one has of it."""
    tracks, checkpoints = files.published_url(settings), files.checkpoints_url(settings)
    if tracks is None or checkpoints is None:
        return
    for mirror, command in (
        (tracks_mirror(tracks, files.served(settings).data_dir), "catalog"),
        (checkpoint_mirror(checkpoints, settings.resolved_model_dir()), "models"),
    ):
        try:
            published, here = mirror.generations()
        except ServiceUnavailableError:
            continue  # told of the stores beside it
        if not published:
            yield Finding("published", f"no {mirror.name}", f"`afa {command} publish`")
        elif published == here:
            yield Finding("published", f"{mirror.name}: generation {published}, here too")
        else:
            yield Finding(
                "published",
                f"{mirror.name}: generation {published}; here {here or 'none'}",
                "a node fetches it when its first replica starts, and follows every half minute",
            )


def of_checkpoints(settings: Settings, config: Path | None) -> Iterator[Finding]:
    """Compare every checkpoint in use with its digest."""
    try:
        for model_id, told in digests(settings, config):
            if told:
                yield fault("models", told, f"`afa models pull {model_id}` fetches it again")
            else:
                yield Finding("models", f"{model_id} verified")
    except CardError as error:
        yield fault("models", str(error), "see `afa models list`")
