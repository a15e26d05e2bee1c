"""A time limit for answers that leaves out the time in which this process itself did not run.

A loop that was held up, by a busy machine or by work of its own, finds the answer and the end of
the limit together when it runs again. `asyncio.timeout` would throw the answer away; here the loop
has a few more turns to take it in.
"""

import asyncio
from types import TracebackType

TURNS = 4
SHARE = 0.05
"""Of the limit, for each of those turns."""


class InTime:
    """Lets the block run for a time, and raises ``TimeoutError`` from it after that.

    Args:
        limit_s: The time, the further turns included.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._turn_s = SHARE * self._limit_s
        first_s = self._limit_s - TURNS * self._turn_s
        self._timer = self._loop.call_later(first_s, self._turn, TURNS)

    def _turn(self, left: int) -> None:
        if left:
            self._timer = self._loop.call_later(self._turn_s, self._turn, left - 1)
        else:
            self._timeout.reschedule(self._loop.time())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)
