"""Messages between processes about ended jobs and changed keys. They only save waiting.

Invariant: nothing relies on a message arriving; listeners learn when some may have been missed.
"""

import asyncio
import contextlib
from collections.abc import Callable

from redis.asyncio.client import PubSub
from redis.asyncio.cluster import RedisCluster

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.store.client import Store, is_unavailable

POLL_S = 5.0
RECONNECT_S = 0.25
SUBSCRIBE_LIMIT_S = 1.0
CANCEL_AGAIN_S = 0.1

Listener = Callable[[str | None], None]


class Bus:
    """One subscription per process, opened at first use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[str, list[Listener]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()

    def listen(self, channel: str, listener: Listener) -> None:
        """Call ``listener`` with every message, and with None when some may have been missed."""
        self._listeners.setdefault(channel, []).append(listener)

    async def ready(self) -> bool:
        """Start listening if necessary; return whether messages sent from now on will arrive."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SUBSCRIBE_LIMIT_S):
                await self._is_ready.wait()
        return self._is_ready.is_set()

    async def publish(self, channel: str, message: str) -> None:
        """Send a message to every process; one that cannot be sent is dropped."""
        with contextlib.suppress(ServiceUnavailableError):
            await self._store.command("PUBLISH", channel, message)

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_AGAIN_S)

    async def _run(self) -> None:
        while not is_cancelled():
            try:
                await self._listen_once()
            except Exception as error:
                if not is_unavailable(error):
                    raise
                await asyncio.sleep(RECONNECT_S)
            finally:
                self._is_ready.clear()
                self._tell_missed()

    async def _listen_once(self) -> None:
        async with await self._pubsub() as pubsub:
            await pubsub.subscribe(*self._listeners)
            waiting = set(self._listeners)
            while not is_cancelled():
                message = await pubsub.get_message(timeout=POLL_S)
                if message is None:
                    await pubsub.ping()
                elif message["type"] == "subscribe":
                    waiting.discard(message["channel"].decode())
                    if not waiting:
                        self._tell_missed()
                        self._is_ready.set()
                elif message["type"] == "message":
                    text = message["data"].decode()
                    for listener in self._listeners[message["channel"].decode()]:
                        listener(text)

    async def _pubsub(self) -> PubSub:
        redis = self._store.redis
        if isinstance(redis, RedisCluster):
            await redis.initialize()  # before that, it knows no node
            # A cluster forwards every message to every node, so any node will do.
            return redis.pubsub(node=redis.get_random_node())
        return redis.pubsub()

    def _tell_missed(self) -> None:
        for listeners in self._listeners.values():
            for listener in listeners:
                listener(None)


def is_cancelled() -> bool:
    """Return whether this task was asked to end.

    Before Python 3.12, asyncio.wait_for, which the client uses, may swallow the exception itself
    (python/cpython#86296).
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
