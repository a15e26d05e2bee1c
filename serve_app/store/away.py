"""Leave a server that has just failed alone for a second, then try it again."""

import time
from collections.abc import Callable

LOOK_AGAIN_S = 1.0
SILENT_TIMEOUT_S = 0.02
"""Longest wait for a server that has just not answered a call; a healthy one is faster."""


class Away:
    """When a server last failed, as far as one caller knows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Use ``clock``, which returns seconds."""
        self._clock = clock
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the server may be called."""
        return self._clock() >= self._until

    def mark(self) -> None:
        """Note that it has failed."""
        self._until = self._clock() + LOOK_AGAIN_S

    def clear(self) -> None:
        """Note that it has answered."""
        self._until = 0.0


class Silence:
    """What the roles on one server share: whether it has just failed to answer a call.

    Invariant: a request that meets a hung server waits one time limit for it, not one for each
    role; once a second a call waits the full time, and any answer ends the silence.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._away = Away(clock)

    def limit_s(self, timeout_s: float) -> float:
        """Return how long a call may wait whose time limit is ``timeout_s``."""
        return timeout_s if self._away.is_over else SILENT_TIMEOUT_S

    def was_met(self, limit_s: float) -> None:
        """Note that a call was not answered within ``limit_s``; short waits prove nothing."""
        if limit_s > SILENT_TIMEOUT_S:
            self._away.mark()

    def was_broken(self) -> None:
        """Note that the server has answered."""
        self._away.clear()
