"""The connection to one Redis role, which runs Lua scripts.

Invariant: every call ends within ``timeout_s``, in an answer or in ``ServiceUnavailableError``; a
script that was sent may have run all the same, therefore every script is idempotent or
harmless when repeated; see this folder's README.
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
"""Made once: each reads the metadata of a package, as every connection does that is given none."""

NO_ADDRESS = (
    "AFA_REDIS_URL or AFA_CACHE_URL is not the address of a Redis, or has an unknown option; it "
    "is redis://:PASSWORD@host:6379/0, with / # ? @ % of the password as %2F %23 %3F %40 %25"
)

MAX_CALLS = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""On their way to one role at a time; each has a connection, which stays open after it."""

ASKED_AT_ONCE = 64
"""Keys of one script: all other calls wait for it."""

UNAVAILABLE = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ClusterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    MovedError,
    TimeoutError,
    OSError,
)
# Answers of a server that cannot write at the moment: no replica, disk full, loading, failing over.
# A script's error may come within "Error running script (...): @user_script: 1: -NOREPLICAS ...".
UNAVAILABLE_REPLY = re.compile(
    r"(?:^|: -)(?:NOREPLICAS|MISCONF|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|LOADING|READONLY|OOM) "
)
IN_PIPELINE = "of pipeline caused error: "

T = TypeVar("T")
Keys = Sequence[str]
Args = Sequence[str | bytes | int | float]


def says_unavailable(message: str) -> bool:
    """Return whether an error reply means that the server cannot do its work at the moment.

    Args:
        message: As redis-py words it; of a pipeline ``Command # 2 (SET a b) of pipeline caused
            error: ('NOREPLICAS Not enough good replicas to write.',)``.
    """
    reply = message.rpartition(IN_PIPELINE)[2].lstrip("('\"")
    return UNAVAILABLE_REPLY.search(reply) is not None


def says_something(answer: Any) -> bool:
    """Return whether there is anything behind a key that was asked, as `ask.lua` does."""
    if isinstance(answer, list):
        return any(part is not None for part in answer)
    return answer not in (None, 0)


class Store:
    """One Redis role: runs scripts and plain commands, and says plainly when it is away."""

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
        """Return the script of that name."""
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
        """Run a script without a time limit; errors are Redis's own."""
        script = self.script(name)
        try:
            return await self._send("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._send("EVAL", script.text, len(keys), *keys, *args)

    async def run_replicated(
        self, name: str, keys: Keys, args: Args, replicas: int, wait_ms: int
    ) -> Any:
        """Run a script that writes, and wait until ``replicas`` have what it wrote.

        Both go over one connection: WAIT knows only what its own connection has written.

        Raises:
            ServiceUnavailableError: No answer in time, or too few replicas; it may have run.
            ValueError: On a cluster, where ``min-replicas-to-write`` has to do instead.
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
        """Make a call that has a connection to itself; in a burst it waits for its turn."""
        async with self._turns:
            return await call()

    async def guard(self, call: Awaitable[T], timeout_s: float | None = None) -> T:
        """Await a Redis call with the role's time limit.

        Raises:
            ServiceUnavailableError: The role is away or too slow.
        """
        silence = self._silence if timeout_s is None else None
        limit_s = timeout_s or self.timeout_s
        if silence is not None:
            limit_s = silence.limit_s(limit_s)
        try:
            async with InTime(limit_s):
                answer = await call
        except UNAVAILABLE as error:
            if silence is not None and isinstance(error, TimeoutError | RedisTimeoutError):
                silence.was_met(limit_s)
            raise ServiceUnavailableError(
                "part of the service is unavailable; try again"
            ) from error
        except ResponseError as error:
            if says_unavailable(str(error)):
                raise ServiceUnavailableError(
                    "part of the service is unavailable; try again"
                ) from error
            raise
        if silence is not None:
            silence.was_broken()
        return answer

    async def command(self, *parts: str | bytes | int | float) -> Any:
        """Run one plain command.

        Raises:
            ServiceUnavailableError: No answer in time.
        """
        return await self.guard(self._send(*parts))

    async def batch(self, commands: Sequence[Sequence[str | bytes | int | float]]) -> list[Any]:
        """Run many plain commands in one trip; not atomic.

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
        """Ask many keys the same; not atomic.

        Where all lie on one server, keys with nothing behind them have no part in the answer:
        sweeps look at every shard each second, and mostly find nothing.

        Args:
            names: The keys.
            command: It reads, and its first argument is the key.
            args: What follows the key.

        Returns:
            By key what is no null, no 0, and no list of nothing or of nulls alone.

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
        """Return the names of all matching keys of every shard: for operators, never for requests.

        Raises:
            ServiceUnavailableError: Not all were seen in time.
        """

        async def found() -> list[str]:
            names = self.redis.scan_iter(match=pattern, count=1000)
            return [name.decode() async for name in names]

        return await self.guard(found(), timeout_s)

    async def now_ms(self) -> int:
        """Return the time that the role's scripts go by, in Unix milliseconds."""
        return int(await self.run("now", []))

    async def refuse_half_restored(self) -> None:
        """Raise unless the last restore of the ledger, if there was one, came to its end.

        Raises:
            ValueError: It did not.
        """
        if await self.command("GET", FORMAT_KEY) == HALF_RESTORED.encode():
            raise ValueError(
                "this ledger was restored in part: empty its Redis, or take a new data folder, and "
                "restore again"
            )

    async def claim_shards(self) -> None:
        """Note format and number of shards at the ledger's first use, and keep to them ever after.

        Format 1, of 0.1, had no such note: it is read, and written anew where it changes.

        Raises:
            ValueError: The data were written with another number, and would not be found; or by a
                later afa.
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
        """Return when a write would be taken, of a Redis Cluster on every primary.

        It changes nothing, so that nothing is logged or replicated: what is written is a new value
        of a key that does not exist. Redis refuses it all the same where it refuses writes.

        Raises:
            ServiceUnavailableError: A server is away, or takes no writes.
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
    """Return the UTC moment of a stamp of the scripts: Unix milliseconds."""
    return datetime.fromtimestamp(stamp / 1000, UTC)


def is_same_server(url: str, other: str) -> bool:
    """Return whether two addresses lead to one server, whatever user and database they name."""
    places = [
        parts.path if parts.scheme == "unix" else (parts.hostname, parts.port or DEFAULT_PORT)
        for parts in (urlsplit(url), urlsplit(other))
    ]
    return places[0] == places[1]


@contextmanager
def reading_address() -> Iterator[None]:
    """Say plainly that an address is none.

    Raises:
        ValueError: The text has nothing of the address, as there may be a password in it.
    """
    try:
        yield
    except (AttributeError, TypeError, ValueError, RedisError):
        raise ValueError(NO_ADDRESS) from None


def open_redis(url: str, **options: Any) -> Redis:
    """Prepare the connections to one server.

    Raises:
        ValueError: It is no address of one.
    """
    with reading_address():
        redis = Redis.from_url(url, **options)
        redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # takes options
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
        url: ``redis://``, ``rediss://``, ``unix://`` or ``redis+cluster://host:port``.
        timeout_s: Longest wait for one call. Callers that hold a request use the default; workers
            may wait longer.
        shards: Number of account shards; fixed for the life of the data.
        clock: Stand-in for ``lua/lib/clock.lua``, for tests.
        source: Stand-in for the Lua folder, for tests.
        autopipelines: Send the commands of one turn of the event loop together; not for blocking
            ones.
        silence: Shared by the roles that one server plays.

    Raises:
        ValueError: It is no address of one.
    """
    retry = Retry(ConstantBackoff(RECONNECT_PAUSE_S), 2)
    with reading_address():
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    redis: Redis | RedisCluster
    if parts.scheme == CLUSTER_SCHEME:
        redis = RedisCluster(
            startup_nodes=[ClusterNode(parts.hostname or "127.0.0.1", port)],
            username=unquote(parts.username or "") or None,
            password=unquote(parts.password or "") or None,
            socket_timeout=2 * timeout_s,  # whoever waits has given up before
            socket_connect_timeout=timeout_s,
            retry=retry,
            max_connections=2 * MAX_CALLS,  # turns are what is waited for
            driver_info=DRIVER,
        )
    else:
        redis = open_redis(
            url,
            socket_timeout=2 * timeout_s,  # whoever waits has given up before
            socket_connect_timeout=timeout_s,
            retry=retry,
            max_connections=2 * MAX_CALLS,  # turns are what is waited for
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
