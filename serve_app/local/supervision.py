"""Keeps an embedded Redis running: one that died is restarted, after ever longer pauses.

A full disk ends a Redis that forces its file to disk, again and again until there is room; thanks
to the pauses it then comes back by itself.
"""

import time
from collections.abc import Callable

from serve_app.local.embedded_redis import LocalRedis, LocalRedisError, end_process, is_alive

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
STEADY_S = 60.0
"""A server that ran this long did not die of a problem at its start."""


class SupervisedRedis:
    """One server, and how to start it again."""

    def __init__(self, name: str, start: Callable[[], LocalRedis]) -> None:
        """Start the server.

        Raises:
            LocalRedisError: It did not start.
        """
        self._name = name
        self._start = start
        self._server = start()
        self._started_at = time.monotonic()
        self._pause_s = FIRST_PAUSE_S
        self._not_before = 0.0

    @property
    def url(self) -> str:
        """Address of the server."""
        return self._server.url

    @property
    def left_pid(self) -> int | None:
        """Process id of the server, if it is ours and was found running, not started here."""
        return None if self._server.is_new else self._server.pid

    def stop(self) -> None:
        """End the server if it is ours."""
        self._server.stop()

    def look_after(self, say: Callable[[str], None]) -> bool:
        """Restart the server if it died; return whether it was restarted.

        Args:
            say: Reports to the operator what happened.
        """
        pid, now = self._server.pid, time.monotonic()
        if pid is None or is_alive(pid) or now < self._not_before:
            return False
        if now - self._started_at > STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        end_process(pid)  # it has ended; this removes the zombie
        self._not_before = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        say(f"the {self._name} Redis ended; starting it again")
        try:
            self._server = self._start()
        except (LocalRedisError, OSError) as error:
            say(f"it did not start: {error}")
            return False
        self._started_at = time.monotonic()
        return True
