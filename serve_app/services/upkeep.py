"""Chores that must go on whatever else happens: each has a loop, so none stops another."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from serve_app.domain.errors import with_cause
from serve_app.domain.telemetry.metrics import CHORES_FAILED

logger = logging.getLogger(__name__)

STALLED_AFTER = 20
"""Periods (plus a minute) without an end of a round after which a chore counts as stalled."""

STALL_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Chore:
    """Something done again and again.

    Attributes:
        work: One round; a failure is logged and the next round tries again.
        every_s: Seconds between the end of a round and the start of the next.
    """

    name: str
    work: Callable[[], Awaitable[object]]
    every_s: float


class Upkeep:
    """Runs chores until it is closed; ``clock`` counts seconds."""

    def __init__(
        self, chores: Sequence[Chore], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._chores = chores
        self._clock = clock
        self._ended_at = {chore.name: clock() for chore in chores}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the loops; needs a running event loop."""
        self._tasks = [asyncio.create_task(self._repeat(chore)) for chore in self._chores]

    async def close(self) -> None:
        """End the loops."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stalled(self) -> list[str]:
        """Name the chores that have not completed a round for long."""
        now = self._clock()
        return [
            chore.name
            for chore in self._chores
            if now - self._ended_at[chore.name] > STALLED_AFTER * chore.every_s + STALL_GRACE_S
        ]

    async def _repeat(self, chore: Chore) -> None:
        while True:
            try:
                await chore.work()
            except Exception as error:  # noqa: BLE001  the next round tries again
                # Not its repr, from which redis-py omits the server's message.
                told = chore.name, type(error).__name__, with_cause(error)
                logger.warning("%s: %s: %s", *told)
                CHORES_FAILED.record(1, chore=chore.name)
            self._ended_at[chore.name] = self._clock()
            await asyncio.sleep(chore.every_s)
