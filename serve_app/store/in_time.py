"""A time limit for answers that leaves out the time in which this thread could not run.

A loop that was blocked, by a busy machine or by its own work, finds the answer and the end of the
limit together when it runs again. `asyncio.timeout` would throw the answer away; here the loop has
a few more turns to receive it. And the time for which the loop's thread has waited for a processor
is added to the limit, which at most doubles.
"""

import asyncio
import os
import threading
from types import TracebackType

TURNS = 4
SHARE = 0.05
"""Part of the limit for each of those turns."""


class _OwnFile:
    """Linux's scheduling statistics of a thread, held open by the thread itself."""

    def __init__(self) -> None:
        try:
            self._descriptor: int | None = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._descriptor = None

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def waited_s(self) -> float:
        if self._descriptor is None:
            return 0.0
        return int(os.pread(self._descriptor, 64, 0).split()[1]) / 1e9


_own = threading.local()


def waited_s() -> float:
    """Return the seconds for which this thread was ready to run but had no processor.

    The second figure of its ``schedstat`` (Documentation/scheduler/sched-stats of Linux); 0 if the
    system does not report it.
    """
    try:
        file: _OwnFile = _own.file
    except AttributeError:
        file = _own.file = _OwnFile()
    return file.waited_s()


class InTime:
    """Lets the block run for a limited time, then raises ``TimeoutError`` from it.

    Args:
        limit_s: Time limit, including the further turns.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._began_s, self._waited_before_s = self._loop.time(), waited_s()
        self._turn_s = SHARE * self._limit_s
        first_s = self._limit_s - TURNS * self._turn_s
        self._timer = self._loop.call_later(first_s, self._turn, TURNS)

    def _turn(self, left: int) -> None:
        if left:
            self._timer = self._loop.call_later(self._turn_s, self._turn, left - 1)
            return
        waited = min(waited_s() - self._waited_before_s, self._limit_s)
        now_s = self._loop.time()
        if now_s < self._began_s + self._limit_s + waited - self._turn_s:
            self._timer = self._loop.call_later(self._turn_s, self._turn, 0)
        else:
            self._timeout.reschedule(now_s)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)
