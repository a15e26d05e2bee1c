"""The connection to one Redis role, which runs Lua scripts.

Invariant: every call ends within ``timeout_s``, with an answer or ``ServiceUnavailableError``; a
script may have run even after an error, so every script is idempotent or harmless when repeated;
see this folder's README.
"""

import asyncio
import re
import resource
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.store.autopipeline import Autopipeline
from serve_app.store.away import Silence
from serve_app.store.in_time import InTime
from serve_app.store.keys import DEFAULT_SHARDS, FORMAT_KEY, HALF_RESTORED, SHARDS_KEY, Keyspace
from serve_app.store.lua import Script, compose, lua_source

CLUSTER_SCHEME = "redis+cluster"
DEFAULT_PORT = 6379
DEFAULT_TIMEOUT_S = 0.8
LEDGER_FORMAT = 2
RECONNECT_PAUSE_S = 0.02
DRIVER = DriverInfo()
"""Made once, since making one reads a package's metadata; each connection would do that itself."""

NO_ADDRESS = (
    "AFA_REDIS_URL or AFA_CACHE_URL is not the address of a Redis, or has an unknown option; it "
    "is redis://:PASSWORD@host:6379/0, with / # ? @ % of the password as %2F %23 %3F %40 %25"
)

MAX_CALLS = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Calls to one role at a time; each has a connection, which stays open afterwards."""

ASKED_AT_ONCE = 64
"""Keys per script; all other calls wait while it runs."""

UNAVAILABLE = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ClusterDownError,
    RedisClusterException,  # no node answers, or none has the slot
    OutOfMemoryError,
    ReadOnlyError,
    MovedError,
    TimeoutError,
    OSError,
)
# Errors of a server that cannot write at the moment: no replica, disk full, loading, failing over.
# A script's error may come within "Error running script (...): @user_script: 1: -NOREPLICAS ...".
UNAVAILABLE_REPLY = re.compile(
    r"(?:^|: -)(?:NOREPLICAS|MISCONF|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|LOADING|READONLY|OOM) "
)
IN_PIPELINE = "of pipeline caused error: "
UVLOOP_CLOSED = "the handler is closed"
"""Uvloop's RuntimeError for a write to a connection that the server has just reset."""

T = TypeVar("T")
Keys = Sequence[str]
Args = Sequence[str | bytes | int | float]


def says_unavailable(message: str) -> bool:
    """Return whether an error reply means that the server cannot do its work at the moment.

    Args:
        message: In redis-py's words; for a pipeline ``Command # 2 (SET a b) of pipeline caused
            error: ('NOREPLICAS Not enough good replicas to write.',)``.
    """
    reply = message.rpartition(IN_PIPELINE)[2].lstrip("('\"")
    return UNAVAILABLE_REPLY.search(reply) is not None


def is_unavailable(error: Exception) -> bool:
    """Return whether an error means that a server is away, or cannot do its work at the moment."""
    if isinstance(error, ResponseError) and not isinstance(error, UNAVAILABLE):
        return says_unavailable(str(error))
    return isinstance(error, UNAVAILABLE) or (
        isinstance(error, RuntimeError) and UVLOOP_CLOSED in str(error)
    )


def says_something(answer: Any) -> bool:
    """Return whether an answer is not empty, by the same rule as `ask.lua`."""
    if isinstance(answer, list):
        return any(part is not None for part in answer)
    return answer not in (None, 0)


class Store:
    """One Redis role: runs scripts and plain commands, with a clear error when unavailable."""

    def __init__(
        self,
        redis: "Redis | RedisCluster",
        keyspace: Keyspace,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        clock: str | None = None,
        source: Callable[[str], str] = lua_source,
        *,
        autopipelines: bool = False,
        silence: Silence | None = None,
    ) -> None:
        self.redis = redis
        self._silence = silence
        self._autopipeline = (
            Autopipeline(redis) if autopipelines and isinstance(redis, Redis) else None
        )
        self.keys = keyspace
        self.timeout_s = timeout_s
        self._clock = clock
        self._source = source
        self._scripts: dict[str, Script] = {}
        self._turns = asyncio.Semaphore(MAX_CALLS)

    def script(self, name: str) -> Script:
        """Return the script with that name."""
        found = self._scripts.get(name)
        if found is None:
            found = self._scripts[name] = compose(name, self._clock, self._source)
        return found

    async def run(self, name: str, keys: Keys, args: Args = ()) -> Any:
        """Run a script.

        Raises:
            ServiceUnavailableError: No answer in time; it may have run.
        """
        return await self.guard(self.evaluate(name, keys, args))

    async def evaluate(self, name: str, keys: Keys, args: Args = ()) -> Any:
        """Run a script without a time limit; errors are those of Redis."""
        script = self.script(name)
        try:
            return await self._send("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._send("EVAL", script.text, len(keys), *keys, *args)

    async def run_replicated(
        self, name: str, keys: Keys, args: Args, replicas: int, wait_ms: int
    ) -> Any:
        """Run a script that writes, and wait until ``replicas`` have what it wrote.

        Both use one connection, since WAIT knows only what its own connection has written.

        Raises:
            ServiceUnavailableError: No answer in time, or too few replicas; it may have run.
            ValueError: The role is a cluster; use ``min-replicas-to-write`` there.
        """
        if self.is_cluster:
            raise ValueError("waiting for replicas is not supported on a cluster")
        pipeline = self.redis.pipeline(transaction=False)
        pipeline.execute_command("EVAL", self.script(name).text, len(keys), *keys, *args)
        pipeline.execute_command("WAIT", replicas, wait_ms)
        answer, reached = await self.guard(
            self._in_turn(pipeline.execute), self.timeout_s + wait_ms / 1000
        )
        if int(reached) < replicas:
            raise ServiceUnavailableError("this is not yet safe on a replica; call again")
        return answer

    @property
    def is_cluster(self) -> bool:
        """Whether the role is spread over a Redis Cluster, where a script sees one shard."""
        return isinstance(self.redis, RedisCluster)

    def _send(self, *parts: str | bytes | int | float) -> Awaitable[Any]:
        if self._autopipeline is not None:
            return self._autopipeline.send(*parts)
        return self._in_turn(lambda: self.redis.execute_command(*parts))

    async def _in_turn(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call on a connection of its own; in a burst it waits for its turn."""
        async with self._turns:
            return await call()

    async def guard(self, call: Awaitable[T], timeout_s: float | None = None) -> T:
        """Await a Redis call with the role's time limit.

        Raises:
            ServiceUnavailableError: The role is unavailable or too slow.
        """
        silence = self._silence if timeout_s is None else None
        limit_s = timeout_s or self.timeout_s
        if silence is not None:
            limit_s = silence.limit_s(limit_s)
        try:
            async with InTime(limit_s):
                answer = await call
        except Exception as error:
            if not is_unavailable(error):
                raise
            if silence is not None and isinstance(error, TimeoutError | RedisTimeoutError):
                silence.was_met(limit_s)
            await self._leave_replica(error)
            raise ServiceUnavailableError(
                "part of the service is unavailable; try again"
            ) from error
        if silence is not None:
            silence.was_broken()
        return answer

    async def _leave_replica(self, error: Exception) -> None:
        """Connect anew if a server has become a replica: its address may lead to another by now."""
        is_replica = isinstance(error, ReadOnlyError) or "-READONLY " in str(error)
        if is_replica and isinstance(self.redis, Redis):
            await self.redis.connection_pool.disconnect(inuse_connections=False)

    async def command(self, *parts: str | bytes | int | float) -> Any:
        """Run one plain command.

        Raises:
            ServiceUnavailableError: No answer in time.
        """
        return await self.guard(self._send(*parts))

    async def batch(self, commands: Sequence[Sequence[str | bytes | int | float]]) -> list[Any]:
        """Run many plain commands in one round trip; not atomic.

        Raises:
            ServiceUnavailableError: No answer in time.
        """
        pipeline = (
            self.redis.pipeline()
            if isinstance(self.redis, RedisCluster)
            else self.redis.pipeline(transaction=False)
        )
        for command in commands:
            pipeline.execute_command(*command)
        return cast(
            "list[Any]", await self.guard(self._in_turn(pipeline.execute), max(self.timeout_s, 5.0))
        )

    async def ask(
        self, names: Sequence[str], command: str, *args: str | bytes | int | float
    ) -> dict[str, Any]:
        """Run one reading command on many keys; not atomic.

        If all are on one server, the server sends no empty answers: sweeps look at every shard
        each second, and mostly find nothing.

        Args:
            names: The keys.
            command: A command that reads; its first argument is the key.
            args: Further arguments after the key.

        Returns:
            The answers by key, without null, 0, empty lists and lists of nulls.

        Raises:
            ServiceUnavailableError: No answer in time.
        """
        if self.is_cluster:
            answers = await self.batch([(command, name, *args) for name in names])
            return {
                name: answer
                for name, answer in zip(names, answers, strict=True)
                if says_something(answer)
            }
        parts = [names[at : at + ASKED_AT_ONCE] for at in range(0, len(names), ASKED_AT_ONCE)]
        script = self.script("ask").text
        said = await self.batch(
            [("EVAL", script, len(part), *part, command, *args) for part in parts]
        )
        return {
            part[place - 1]: answer
            for part, pairs in zip(parts, said, strict=True)
            for place, answer in zip(pairs[::2], pairs[1::2], strict=True)
        }

    async def names(self, pattern: str, timeout_s: float = 30.0) -> list[str]:
        """Return the names of all matching keys in every shard: for operators, never for requests.

        Raises:
            ServiceUnavailableError: Not all keys were read in time.
        """

        async def found() -> list[str]:
            names = self.redis.scan_iter(match=pattern, count=1000)
            return [name.decode() async for name in names]

        return await self.guard(found(), timeout_s)

    async def now_ms(self) -> int:
        """Return the time that the role's scripts use, in Unix milliseconds."""
        return int(await self.run("now", []))

    async def refuse_half_restored(self) -> None:
        """Raise if the last restore of the ledger was not completed.

        Raises:
            ValueError: It was not completed.
        """
        if await self.command("GET", FORMAT_KEY) == HALF_RESTORED.encode():
            raise ValueError(
                "this ledger was restored in part: empty its Redis, or take a new data folder, and "
                "restore again"
            )

    async def claim_shards(self) -> None:
        """Note format and number of shards at the ledger's first use; check them from then on.

        Format 1, of release 0.1, had no such note: its records are read, and rewritten when they
        change.

        Raises:
            ValueError: The data were written with another number of shards, and would not be
                found; or by a later afa.
        """
        await self.command("SETNX", SHARDS_KEY, self.keys.shards)
        await self.command("SETNX", FORMAT_KEY, LEDGER_FORMAT)
        await self.refuse_half_restored()
        written = int(await self.command("GET", FORMAT_KEY))
        if written > LEDGER_FORMAT:
            raise ValueError(
                f"this ledger has format {written}, and this afa reads up to {LEDGER_FORMAT}: "
                "install the version that wrote it"
            )
        written = int(await self.command("GET", SHARDS_KEY))
        if written != self.keys.shards:
            raise ValueError(
                f"this ledger has {written} shards, not {self.keys.shards}: "
                f"set AFA_LEDGER_SHARDS={written}"
            )

    async def ping(self) -> bool:
        """Return whether the role answers."""
        try:
            await self.command("PING")
        except ServiceUnavailableError:
            return False
        return True

    async def try_write(self) -> None:
        """Check that a write would be accepted, by every primary of a Redis Cluster.

        It changes nothing, so nothing is logged or replicated: it replaces the value of a key that
        does not exist. Redis still refuses it whenever it refuses writes.

        Raises:
            ServiceUnavailableError: A server is unavailable, or accepts no writes.
        """
        await asyncio.gather(
            *(self.command("SET", name, "", "XX") for name in await self._name_on_each_server())
        )

    async def _name_on_each_server(self) -> list[str]:
        names = [self.keys.shard(self.keys.shard_tag(n), "trial") for n in range(self.keys.shards)]
        if not isinstance(self.redis, RedisCluster):
            return names[:1]
        await self.guard(self.redis.initialize())
        return list({self.redis.get_node_from_key(name): name for name in names}.values())

    async def close(self) -> None:
        """Close every connection."""
        await self.redis.aclose()


def from_ms(stamp: int) -> datetime:
    """Return the UTC time of a timestamp that a script wrote: Unix milliseconds."""
    return datetime.fromtimestamp(stamp / 1000, UTC)


def is_same_server(url: str, other: str) -> bool:
    """Return whether two addresses are of one server, whatever user and database they name."""
    places = [
        parts.path if parts.scheme == "unix" else (parts.hostname, parts.port or DEFAULT_PORT)
        for parts in (urlsplit(url), urlsplit(other))
    ]
    return places[0] == places[1]


@contextmanager
def reading_address() -> Iterator[None]:
    """Report an invalid address clearly.

    Raises:
        ValueError: The address is invalid; the text does not repeat it, as it may have a password.
    """
    try:
        yield
    except (AttributeError, TypeError, ValueError, RedisError):
        raise ValueError(NO_ADDRESS) from None


def open_redis(url: str, **options: Any) -> Redis:
    """Prepare the connections to one server.

    Raises:
        ValueError: It is not the address of a server.
    """
    with reading_address():
        redis = Redis.from_url(url, **options)
        redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # checks options
    return redis


def connect(
    url: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    shards: int = DEFAULT_SHARDS,
    clock: str | None = None,
    source: Callable[[str], str] = lua_source,
    autopipelines: bool = False,
    silence: Silence | None = None,
) -> Store:
    """Prepare the connection to one Redis role; nothing is sent yet.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://`` or ``redis+cluster://host:port``, which
            has no options.
        timeout_s: Longest wait for one call. Callers that hold a request use the default; workers
            may wait longer.
        shards: Number of account shards; fixed for the life of the data.
        clock: Replacement for ``lua/lib/clock.lua``, for tests.
        source: Replacement for the Lua folder, for tests.
        autopipelines: Whether to send the commands of one turn of the event loop together; not for
            blocking ones.
        silence: Shared by all roles on one server.

    Raises:
        ValueError: It is not the address of a server.
    """
    retry = Retry(ConstantBackoff(RECONNECT_PAUSE_S), 2)
    with reading_address():
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
        if parts.scheme == CLUSTER_SCHEME and parts.query:
            raise ValueError("a cluster's address has no options")
    redis: Redis | RedisCluster
    if parts.scheme == CLUSTER_SCHEME:
        redis = RedisCluster(
            startup_nodes=[ClusterNode(parts.hostname or "127.0.0.1", port)],
            username=unquote(parts.username or "") or None,
            password=unquote(parts.password or "") or None,
            socket_timeout=2 * timeout_s,  # the caller has given up before
            socket_connect_timeout=timeout_s,
            retry=retry,
            max_connections=2 * MAX_CALLS,  # calls wait for turns, not for connections
            driver_info=DRIVER,
        )
    else:
        redis = open_redis(
            url,
            socket_timeout=2 * timeout_s,  # the caller has given up before
            socket_connect_timeout=timeout_s,
            retry=retry,
            max_connections=2 * MAX_CALLS,  # calls wait for turns, not for connections
            driver_info=DRIVER,
        )
    return Store(
        redis,
        Keyspace(shards),
        timeout_s,
        clock,
        source,
        autopipelines=autopipelines,
        silence=silence,
    )
