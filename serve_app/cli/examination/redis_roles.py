"""Ledger and cache: whether they answer, and whether their settings keep credits safe."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisClusterException, ResponseError

from configs.settings import Settings
from serve_app.cli.examination.finding import Finding, attempt, fault
from serve_app.composition.files import LocalFiles, NotRunningError
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.local.embedded_redis import LocalRedisError, find_binary
from serve_app.store.client import DEFAULT_PORT, Store, connect, is_same_server
from serve_app.store.keys import JOB_EVENTS

LEDGER_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory-policy": "noeviction",
    "aof-load-truncated": "no",
}
"""With another value of any of these, acknowledged writes may be lost or doubled."""

MOST_SKEW_S = 5.0
TIMEOUT_S = 5.0

ADDRESS = (
    "set {} to redis://:PASSWORD@host:6379/0, or to redis+cluster://:PASSWORD@host:6379 where a "
    "Redis Cluster answers and the user has +cluster|slots"
)
AWAY = (
    "is it running, and are address and password right? In an address / # ? @ % of a password are "
    "written %2F %23 %3F %40 %25"
)
SLOTS = "begin the address with redis+cluster:// in place of redis://"
SENTINEL = (
    "it has no data: name the primary, by an address that leads to another where that is promoted"
)
RIGHTS = (
    "a user of an ACL needs at least: ACL SETUSER NAME ~* resetchannels &afa-* +@read +@write "
    "+@scripting +@pubsub +@connection +time +info, and in a Redis Cluster +cluster|slots +asking"
)


@dataclass(frozen=True, slots=True)
class Server:
    """One server that a role is on.

    Attributes:
        role: The part that findings belong to.
        name: What findings begin with; "" if it is the only server.
        ask: Sends a command, and returns the answer.
    """

    role: str
    name: str
    ask: Callable[..., Any]

    def told(self, *command: str) -> Mapping[str, Any]:
        """Return what a command reports; empty if this user may not run it."""
        try:
            answer: Mapping[str, Any] = self.ask(*command)
        except ResponseError:
            return {}
        return answer

    def finding(self, state: str, remedy: str, *, is_fault: bool = True) -> Finding:
        """Make a finding for this server."""
        return Finding(self.role, f"{self.name}{state}", remedy, is_fault)


def of_redis(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Check both roles of Redis."""
    if settings.redis_url is None:
        try:
            yield Finding("ledger", f"embedded: {find_binary()}")
        except LocalRedisError as error:
            yield fault("ledger", str(error), "then `afa up`")
    try:
        ledger = files.ledger_url(settings)
    except NotRunningError:  # embedded and not started
        pass
    else:
        look = partial(of_ledger, ledger, is_own=settings.redis_url is None)
        yield from attempt("ledger", look, ADDRESS.format("AFA_REDIS_URL"))
    if settings.cache_url is not None:
        look = partial(of_cache, settings.cache_url, settings.redis_url)
        yield from attempt("cache", look, ADDRESS.format("AFA_CACHE_URL"))


def of_ledger(url: str, *, is_own: bool) -> Iterator[Finding]:
    """Check what keeps credits safe: the ledger's settings, its replicas and its clock.

    Args:
        url: Address of the ledger.
        is_own: Whether it is the embedded one, which ends with the service.
    """
    with connected(url) as (store, run):
        try:
            ping(store, run)
        except ServiceUnavailableError as error:
            state = "no answer" if is_own else no_answer(url, error)
            yield Finding("ledger", state, "" if is_own else AWAY, not is_own)
            return
        yield Finding("ledger", "answers")
        script = store.script("now").text
        for server in servers("ledger", store, run):
            look = partial(of_mode, server, is_cluster=store.is_cluster)
            yield from attempt("ledger", look, AWAY)
            yield from attempt("ledger", partial(of_settings, server), AWAY)
            yield from attempt("ledger", partial(of_memory, server), AWAY)
            yield from attempt("ledger", partial(of_replication, server, is_own=is_own), AWAY)
            yield from attempt("ledger", partial(of_clock, server, script), RIGHTS)
            yield from attempt("ledger", partial(of_channels, server), RIGHTS)


def of_cache(url: str, ledger_url: str | None) -> Iterator[Finding]:
    """Check that the cache can be written to, and makes room for new values."""
    with connected(url) as (store, run):
        try:
            ping(store, run)
        except ServiceUnavailableError as error:
            yield fault("cache", no_answer(url, error), AWAY)
            return
        yield Finding("cache", "answers")
        script = store.script("now").text
        for server in servers("cache", store, run):
            look = partial(of_mode, server, is_cluster=store.is_cluster)
            yield from attempt("cache", look, AWAY)
            yield from attempt("cache", partial(of_role, server, "AFA_CACHE_URL"), AWAY)
            yield from attempt("cache", partial(of_clock, server, script), RIGHTS)
            if ledger_url is None or not is_same_server(url, ledger_url):
                yield from attempt("cache", partial(of_eviction, server), AWAY)


def of_access(settings: Settings) -> Iterator[Finding]:
    """Check that the servers in the settings can be used, and the ledger's accepts writes."""
    for setting, url in (
        ("AFA_REDIS_URL", settings.redis_url),
        ("AFA_CACHE_URL", settings.cache_url),
    ):
        if url is not None:
            yield from attempt(setting, partial(of_server, setting, url), ADDRESS.format(setting))


def of_server(setting: str, url: str) -> Iterator[Finding]:
    """Check that a server answers and runs scripts, and accepts writes if it is the ledger's."""
    with connected(url) as (store, run):
        try:
            ping(store, run)
        except ServiceUnavailableError as error:
            yield fault(setting, no_answer(url, error), AWAY)
            return
        found = [
            finding
            for server in servers(setting, store, run)
            for finding in of_mode(server, is_cluster=store.is_cluster)
        ]
        yield from found
        if found:
            return
        try:
            run(store.now_ms())
            if setting == "AFA_REDIS_URL":
                run(store.try_write())
        except ServiceUnavailableError as error:
            state = f"{place_of(url)} takes no writes ({error.__cause__})"
            yield fault(setting, state, "`afa doctor` says what to do")
            return
        except ResponseError as error:
            yield fault(setting, f"{place_of(url)} refuses this user: {error}", RIGHTS)
            return
        if setting == "AFA_REDIS_URL":
            for server in servers(setting, store, run):
                yield from attempt(setting, partial(of_channels, server), RIGHTS)


def ping(store: Store, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    """Wait for an answer.

    Raises:
        ServiceUnavailableError: There is none.
        RedisClusterException: The address is not that of a Redis Cluster whose nodes answer.
    """
    try:
        run(store.command("PING"))
    except ServiceUnavailableError as error:
        if isinstance(error.__cause__, RedisClusterException):
            raise error.__cause__ from None
        raise


def of_mode(server: Server, *, is_cluster: bool) -> Iterator[Finding]:
    """Check whether a Sentinel, or a node of a cluster, was named as a single server."""
    if not is_cluster and server.told("INFO", "cluster").get("cluster_enabled"):
        yield server.finding("is a Redis Cluster, or a node of one", SLOTS)
    if "sentinel_masters" in server.told("INFO", "sentinel"):
        yield server.finding("is a Redis Sentinel", SENTINEL)


def no_answer(url: str, error: ServiceUnavailableError) -> str:
    """Say which server did not answer, and why."""
    return f"no answer from {place_of(url)} ({str(error.__cause__) or 'in time'})"


def place_of(url: str) -> str:
    """Return where a server is, without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return unquote(parts.path)
    return f"{parts.hostname}:{parts.port or DEFAULT_PORT}"


@contextmanager
def connected(url: str) -> Iterator[tuple[Store, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    """Yield the store at an address, and what runs its calls.

    Raises:
        ValueError: It is not an address; the text does not repeat it, as it may have a password.
    """
    with asyncio.Runner() as runner:
        try:
            store = connect(url, timeout_s=TIMEOUT_S)
        except ValueError:
            raise ValueError("is not the address of a Redis, or has an unknown option") from None
        try:
            yield store, runner.run
        finally:
            runner.run(store.close())


def servers(
    role: str, store: Store, run: Callable[[Coroutine[Any, Any, Any]], Any]
) -> Iterator[Server]:
    """Yield the server of a role, or every primary of its Redis Cluster."""

    def asking(send: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        return lambda *command: run(store.guard(send(*command)))

    if not isinstance(store.redis, RedisCluster):
        yield Server(role, "", asking(store.redis.execute_command))
        return
    for node in store.redis.get_primaries():
        send = partial(store.redis.execute_command, target_nodes=[node])
        yield Server(role, f"{node.name}: ", asking(send))


def of_settings(server: Server) -> Iterator[Finding]:
    """Check the settings that may lose or double acknowledged writes."""
    for name, wanted in LEDGER_SETTINGS.items():
        value = server.told("CONFIG GET", name).get(name)
        if value is None:
            remedy = f"see that it is {wanted}"
            yield server.finding(f"{name} cannot be read", remedy, is_fault=False)
        elif value != wanted:
            remedy = f"CONFIG SET {name} {wanted}, and in its file, for its next start"
            yield server.finding(f"{name} is {value}", remedy)


def of_memory(server: Server) -> Iterator[Finding]:
    """Check that there is room for new data."""
    told = server.told("INFO", "memory")
    most = told.get("maxmemory", 0)
    if most and told["used_memory"] - told.get("mem_not_counted_for_evict", 0) >= most:
        state = f"its memory is full, {most / 2**20:.0f} MB: it refuses every write"
        yield server.finding(state, "CONFIG SET maxmemory to more, and in its file")


def of_replication(server: Server, *, is_own: bool) -> Iterator[Finding]:
    """Check that the ledger can be written to, and which replicas have a copy."""
    yield from of_role(server, "AFA_REDIS_URL")
    n_replicas = server.told("INFO", "replication").get("connected_slaves")
    if n_replicas == 0 and not is_own:
        remedy = "a lost machine loses the newest credits"
        yield server.finding("has no replica", remedy, is_fault=False)


def of_role(server: Server, setting: str) -> Iterator[Finding]:
    """Check that the server is the one that takes writes."""
    told = server.told("INFO", "replication")
    if told.get("role") == "slave":
        master = f"{told['master_host']}:{told['master_port']}"
        link = "" if told["master_link_status"] == "up" else ", which does not answer it"
        remedy = f"a replica takes no writes: name its master in {setting}"
        yield server.finding(f"is a replica of {master}{link}", remedy)


def of_clock(server: Server, script: bytes) -> Iterator[Finding]:
    """Check the time that scripts use."""
    skew_s = int(server.ask("EVAL", script, 0)) / 1000 - time.time()
    if abs(skew_s) > MOST_SKEW_S:
        yield server.finding(f"its clock differs by {skew_s:.0f} s", "keep clocks by NTP")


def of_channels(server: Server) -> Iterator[Finding]:
    """Check that this user may send messages; nobody waits for a job without an id."""
    server.ask("PUBLISH", JOB_EVENTS, "")
    yield from ()


def of_eviction(server: Server) -> Iterator[Finding]:
    """Check that the cache evicts old values to make room."""
    policy = server.told("CONFIG GET", "maxmemory-policy").get("maxmemory-policy")
    remedy = "CONFIG SET maxmemory-policy allkeys-lru with a maxmemory, and both in its file"
    if policy is None:
        advice = "see that it is allkeys-lru or another that evicts"
        yield server.finding("maxmemory-policy cannot be read", advice, is_fault=False)
    elif policy == "noeviction":
        state = "maxmemory-policy is noeviction: it fills up, and then refuses writes"
        yield server.finding(state, remedy)
