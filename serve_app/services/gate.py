"""How many requests a process works on, and takes bodies of, at once; more are refused.

Invariant: whoever waits for a body holds a place among bodies, never one among computations, so
that nobody's slow upload keeps another's request from being computed. Of both an owner has a share.
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
"""Of all owners, in one process: each takes a connection, and memory or disk while it comes."""

FETCHES = 2
"""Addresses of one owner that a process fetches at once; the others wait."""
LONGEST_WAIT_S = TOTAL_S + 5.0
"""As long as a fetch may last, and some to clean up: whoever is next has its turn by then."""

RETRY_AFTER_S = 5


def share_of(limit: int, tier: str = "") -> int:
    """Return how many of so many one owner may have: a quarter, on its own machine all."""
    return limit if tier == LOCAL else max(1, limit // 4)


class Gate:
    """Lets in at most ``limit``, and few of one owner, so that a refusal costs no hold."""

    def __init__(
        self, limit: int, of_one: int | None = None, retry_after_s: int = RETRY_AFTER_S
    ) -> None:
        """Let in so many of one owner, by default its share."""
        self._limit = limit
        self._of_one = of_one
        self._retry_after_s = retry_after_s
        self._inside: Counter[str] = Counter()

    def check(self, owner: str, tier: str = "") -> None:
        """Refuse what would find no room now, before its body is taken.

        Raises:
            ConcurrencyError: There is none for this owner.
            ServiceUnavailableError: There is none for anybody.
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
        """Be inside while the block runs; raises as `check`."""
        self.check(owner, tier)
        with counted(self._inside, owner):
            yield


class BodyPlaces:
    """Places for bodies on their way: few of one owner, so that there are some for every other."""

    def __init__(self, limit: int = MOST_BODIES) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()
        self._fetches: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

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
        with counted(self._taken, owner):
            yield

    @asynccontextmanager
    async def fetching(self, owner: str, limit: int) -> AsyncIterator[None]:
        """Hold a place, and one of the owner's `FETCHES` while the block runs; raises as `taken`.

        Raises:
            ConcurrencyError: The addresses before it take too long.
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
    """Count one more of an owner while the block runs."""
    counts[owner] += 1
    try:
        yield
    finally:
        counts[owner] -= 1
        if not counts[owner]:
            del counts[owner]
