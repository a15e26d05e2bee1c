"""A circuit breaker: after repeated failures a provider is left alone for a while.

While closed, all calls pass. Five failures in a row, or one refusal, open it for 15 s; then exactly
one call is let through as a probe. A failed probe opens it for twice as long, up to five minutes;
a success closes it. A provider that asks for a longer pause gets it.
"""

import time
from collections.abc import Callable

MAX_FAILURES = 5
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 300.0
LONGEST_ASKED_S = 86_400.0
"""Longest pause that the provider itself asks for; Spotify's Retry-After can be most of a day."""


class CircuitBreaker:
    """Counts one provider's failures. Not shared between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._n_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until: float | None = None
        self._is_probing = False

    def try_pass(self) -> float:
        """Ask for permission to make a call.

        Returns:
            0 if it may be made (its outcome must then be reported by one of `succeed`, `fail`,
            `trip` or `abandon`), else the seconds until it is worth asking again.
        """
        if self._open_until is None:
            return 0.0
        wait_s = self._open_until - self._clock()
        if wait_s > 0:
            return wait_s
        if self._is_probing:
            return self._pause_s
        self._is_probing = True
        return 0.0

    def succeed(self) -> None:
        """Report that the provider answered; an empty result is an answer."""
        self._n_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._open_until = None
        self._is_probing = False

    def fail(self) -> None:
        """Report that the provider did not answer."""
        self._n_failures += 1
        if self._open_until is not None or self._n_failures >= MAX_FAILURES:
            self.trip()

    def trip(self, at_least_s: float = 0.0) -> None:
        """Open at once: the provider refused, so asking again is useless for now."""
        now = self._clock()
        if self._open_until is not None and now >= self._open_until:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        self._is_probing = False
        until = now + max(self._pause_s, min(at_least_s, LONGEST_ASKED_S))
        self._open_until = max(self._open_until or until, until)

    def abandon(self) -> None:
        """Report that the call was cancelled, which proves nothing; the next may probe again."""
        self._is_probing = False
