"""A time limit for answers that leaves out the time in which this process could not take them in.

A loop that was held up, by a busy machine, by another thread that kept the interpreter or by work
of its own, finds the answer and the end of the limit together when it runs again.
`asyncio.timeout` would throw the answer away. Here the limit is counted in turns of the loop: a
turn that comes late counts for little more than one that comes on time.
"""

import asyncio
from types import TracebackType

SHARE = 0.05
"""Of the limit, between two looks at the clock."""

MOST = 1.5
"""Of that share, counted for one turn at most, however late it comes."""

HELD_UP = 4
"""Limits, after which it is over however little of the time was counted."""


class InTime:
    """Lets the block run for a time, and raises ``TimeoutError`` from it after that.

    Args:
        limit_s: The time for which the loop runs.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._turn_s = SHARE * limit_s
        self._counted_s = 0.0
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._began_s = self._last_s = self._loop.time()
        self._timer = self._loop.call_later(self._turn_s, self._turn)

    def _turn(self) -> None:
        now_s = self._loop.time()
        self._counted_s += min(now_s - self._last_s, MOST * self._turn_s)
        self._last_s = now_s
        if self._counted_s >= self._limit_s or now_s - self._began_s >= HELD_UP * self._limit_s:
            self._timeout.reschedule(now_s)
        else:
            left_s = min(self._turn_s, self._limit_s - self._counted_s)
            self._timer = self._loop.call_later(left_s, self._turn)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)
