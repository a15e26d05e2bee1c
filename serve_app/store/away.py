"""A server that has just failed is left alone for a second, then asked again."""

import time
from collections.abc import Callable

LOOK_AGAIN_S = 1.0


class Away:
    """When a server last failed, as one caller knows it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Use ``clock``, in seconds."""
        self._clock = clock
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the server may be asked."""
        return self._clock() >= self._until

    def mark(self) -> None:
        """Note that it has failed."""
        self._until = self._clock() + LOOK_AGAIN_S

    def clear(self) -> None:
        """Note that it has answered."""
        self._until = 0.0
