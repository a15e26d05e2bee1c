"""Auto-pipelining: commands of the same turn of the event loop are sent to Redis together.

Invariant: each caller gets its own answer or error; no command waits for one of a later turn.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

Part = str | bytes | int | float
Waiting = list[tuple[Sequence[Part], "asyncio.Future[Any]"]]


class Autopipeline:
    """Puts commands into pipelines automatically; not for blocking ones, nor for a cluster."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: Waiting = []
        self._trips: set[asyncio.Task[None]] = set()

    async def send(self, *parts: Part) -> Any:
        """Run one command, in one round trip with all others of this turn.

        Raises:
            RedisError: This command failed, or the whole round trip did.
            OSError, RuntimeError: The connection broke.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._leave)
        self._waiting.append((parts, answer))
        return await answer

    def _leave(self) -> None:
        waiting, self._waiting = self._waiting, []
        trip = asyncio.create_task(self._travel(waiting))
        self._trips.add(trip)  # the loop itself keeps no reference
        trip.add_done_callback(self._trips.discard)

    async def _travel(self, waiting: Waiting) -> None:
        try:
            for (_, answer), found in zip(waiting, await self._exchange(waiting), strict=True):
                if answer.done():  # its caller has gone
                    continue
                if isinstance(found, Exception):
                    answer.set_exception(found)
                else:
                    answer.set_result(found)
        except (RedisError, OSError, RuntimeError) as error:
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
        finally:
            for _, answer in waiting:
                answer.cancel()  # only if the trip itself was cancelled: nobody else answers

    async def _exchange(self, waiting: Waiting) -> list[Any]:
        if len(waiting) == 1:
            return [await self._redis.execute_command(*waiting[0][0])]  # type: ignore[no-untyped-call]
        pipeline = self._redis.pipeline(transaction=False)
        for parts, _ in waiting:
            pipeline.execute_command(*parts)
        return await pipeline.execute(raise_on_error=False)
