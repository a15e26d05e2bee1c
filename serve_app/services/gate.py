"""Limits the requests a process works on, and the bodies it receives, at once; refuses the rest.

Invariant: a request that waits for its body holds a place among bodies, never one among
computations, so that no slow upload keeps another request from being computed. An owner gets only a
share of both.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

from serve_app.domain.errors import ConcurrencyError, ServiceUnavailableError
from serve_app.domain.tiers import LOCAL
from serve_app.providers.web.audio_url import TOTAL_S

MOST_BODIES = 256
"""Bodies of all owners, in one process: each takes a connection, and memory or disk, meanwhile."""

FETCHES = 2
"""Addresses of one owner that a process fetches at once; the others wait."""
LONGEST_WAIT_S = TOTAL_S + 5.0
"""As long as a fetch may last, plus time to clean up: by then it is the next one's turn."""

RETRY_AFTER_S = 5


def share_of(limit: int, tier: str = "") -> int:
    """Return how many of ``limit`` one owner may have: a quarter, or all on its own machine."""
    return limit if tier == LOCAL else max(1, limit // 4)


class Gate:
    """Admits at most ``limit`` requests, and few of one owner, so that a refusal needs no hold."""

    def __init__(
        self, limit: int, of_one: int | None = None, retry_after_s: int = RETRY_AFTER_S
    ) -> None:
        """Admit ``of_one`` requests of one owner, by default its share."""
        self._limit = limit
        self._of_one = of_one
        self._retry_after_s = retry_after_s
        self._inside: Counter[str] = Counter()

    def check(self, owner: str, tier: str = "") -> None:
        """Refuse a request for which there is no room, before its body is received.

        Raises:
            ConcurrencyError: There is no room for this owner.
            ServiceUnavailableError: There is no room for anyone.
        """
        of_one = share_of(self._limit, tier) if self._of_one is None else self._of_one
        if self._inside[owner] >= of_one:
            raise ConcurrencyError(
                f"{of_one} of your requests are worked on, as many as one owner has at a "
                "time; wait for one to end",
                self._retry_after_s,
            )
        if self._inside.total() >= self._limit:
            raise ServiceUnavailableError(
                "too much work is waiting; try again", self._retry_after_s
            )

    @contextmanager
    def entered(self, owner: str, tier: str = "") -> Iterator[None]:
        """Hold a place while the block runs; raises as `check`."""
        self.check(owner, tier)
        with counted(self._inside, owner):
            yield


class BodyPlaces:
    """Places for bodies being received: few for one owner, so that others get some."""

    def __init__(self, limit: int = MOST_BODIES) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()
        self._fetches: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextmanager
    def taken(self, owner: str, limit: int) -> Iterator[None]:
        """Hold one of the owner's ``limit`` places while the block runs.

        Raises:
            ConcurrencyError: The owner has no free place.
            ServiceUnavailableError: There is no free place at all.
        """
        if self._taken[owner] >= limit:
            raise ConcurrencyError(
                f"{limit} of your uploads are on their way, as many as your tier sends at a time; "
                "wait for one to end",
                RETRY_AFTER_S,
            )
        if self._taken.total() >= self._limit:
            raise ServiceUnavailableError("too many uploads are on their way; try again")
        with counted(self._taken, owner):
            yield

    @asynccontextmanager
    async def fetching(self, owner: str, limit: int) -> AsyncIterator[None]:
        """Hold a place, and one of the owner's `FETCHES` while the block runs; raises as `taken`.

        Raises:
            ConcurrencyError: The owner's earlier addresses take too long.
        """
        with self.taken(owner, limit):
            fetches = self._fetches.setdefault(owner, asyncio.Semaphore(FETCHES))
            try:
                async with asyncio.timeout(LONGEST_WAIT_S):
                    await fetches.acquire()
            except TimeoutError as error:
                raise ConcurrencyError(
                    f"{FETCHES} of your addresses are being fetched, as many as one owner has at "
                    "a time; wait for them to end",
                    RETRY_AFTER_S,
                ) from error
            try:
                yield
            finally:
                fetches.release()


@contextmanager
def counted(counts: Counter[str], owner: str) -> Iterator[None]:
    """Count one more for an owner while the block runs."""
    counts[owner] += 1
    try:
        yield
    finally:
        counts[owner] -= 1
        if not counts[owner]:
            del counts[owner]
