"""How many requests a process works on, and takes bodies of, at once; more are refused.

Invariant: whoever waits for a body holds a place among bodies, never one among computations, so
that nobody's slow upload keeps another's request from being computed.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from serve_app.domain.errors import ConcurrencyError, ServiceUnavailableError

MOST_BODIES = 256
"""Of all owners, in one process: each takes a connection, and memory or disk while it comes."""

RETRY_AFTER_S = 5


class Gate:
    """Lets in at most ``limit``, so that a refusal costs no hold."""

    def __init__(self, limit: int, retry_after_s: int = RETRY_AFTER_S) -> None:
        self._limit = limit
        self._retry_after_s = retry_after_s
        self._inside = 0

    def check(self) -> None:
        """Refuse what would find no room now, before its body is taken.

        Raises:
            ServiceUnavailableError: It is full.
        """
        if self._inside >= self._limit:
            raise ServiceUnavailableError(
                "too much work is waiting; try again", self._retry_after_s
            )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside while the block runs.

        Raises:
            ServiceUnavailableError: It is full.
        """
        self.check()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1


class BodyPlaces:
    """Places for bodies on their way: few of one owner, so that there are some for every other."""

    def __init__(self, limit: int = MOST_BODIES) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, owner: str, limit: int) -> Iterator[None]:
        """Hold one of the owner's ``limit`` places while the block runs.

        Raises:
            ConcurrencyError: The owner has no more.
            ServiceUnavailableError: Nobody has.
        """
        if self._taken[owner] >= limit:
            raise ConcurrencyError(
                f"{limit} of your uploads are on their way, as many as your tier sends at a time; "
                "wait for one to end",
                RETRY_AFTER_S,
            )
        if self._taken.total() >= self._limit:
            raise ServiceUnavailableError("too many uploads are on their way; try again")
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
