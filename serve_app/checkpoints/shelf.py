"""Checkpoints in addition to the chosen ones, for requests that name them.

``serve.multiplexed`` counts models and unloads the oldest while requests still use it; here memory
is counted, and a model in use stays until its last request is done.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from serve_app.checkpoints.exchange import Retire
from serve_app.checkpoints.freeze import freeze_loaded

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ShelfFullError(Exception):
    """There is no memory for a named checkpoint; the message says which and why."""

    def __init__(self, model_id: str, reason: str) -> None:
        super().__init__(model_id, reason)
        self.model_id = model_id

    def __str__(self) -> str:
        return " ".join(self.args)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    size_bytes: int


class Shelf(Generic[K, T]):
    """Loads named sets, once for all concurrent requests; the least recently used is released.

    A set is released before the new one is loaded, so that both are never in memory at once. That
    needs a size known beforehand: the name's own from its last load, else ``expected_bytes``. If
    that is unknown, or more than the budget, the new one is loaded first, and during that time
    memory may exceed the budget by its size.

    Args:
        load: Returns a warm set of networks for a name, and the bytes of its weights.
        retire: Called with a set that gets no more requests; returns when its last request is
            done.
        budget_bytes: Bytes of weights that may be kept at the same time.
        release: Called, in a thread, when nothing refers to a set any longer.
        expected_bytes: Returns about the bytes that ``load`` will return for a name; 0 if unknown.
    """

    def __init__(
        self,
        load: Callable[[K], Awaitable[tuple[T, int]]],
        retire: Retire[T],
        budget_bytes: int,
        release: Callable[[], None] = lambda: None,
        expected_bytes: Callable[[K], int] = lambda _: 0,
    ) -> None:
        self._load = load
        self._retire = retire
        self._budget_bytes = budget_bytes
        self._release = release
        self._expected_bytes = expected_bytes
        self._kept: OrderedDict[K, _Kept[T]] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self._lock = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def values(self) -> list[T]:
        """The sets that are kept, least recently used first."""
        return [kept.value for kept in self._kept.values()]

    async def get(self, name: K) -> T:
        """Return the set of a name; the caller must begin its request before any other await.

        Raises:
            ShelfFullError: The set alone is larger than the budget.
            Exception: Whatever loading raised.
        """
        if name not in self._kept:
            async with self._lock:  # one at a time, so that memory is counted correctly
                if name not in self._kept:
                    await self._add(name)
        self._kept.move_to_end(name)
        return self._kept[name].value

    async def _add(self, name: K) -> None:
        self._check_size(name, self._sizes.get(name, 0))
        expected = self._sizes.get(name) or self._expected_bytes(name)
        if expected <= self._budget_bytes:
            leaving = self._make_room(expected)
            if leaving:
                await asyncio.wait(leaving)
        value, size_bytes = await self._load(name)
        self._sizes[name] = size_bytes
        try:
            self._check_size(name, size_bytes)
        except ShelfFullError:
            self._let_go(value)
            raise
        self._make_room(size_bytes)
        self._kept[name] = _Kept(value, size_bytes)
        await asyncio.to_thread(freeze_loaded)

    def _check_size(self, name: K, size_bytes: int) -> None:
        if size_bytes > self._budget_bytes:
            reason = f"needs {size_bytes} bytes, and named models may have {self._budget_bytes}"
            raise ShelfFullError(str(name), reason)

    def _make_room(self, size_bytes: int) -> list["asyncio.Task[None]"]:
        """Release the least recently used sets; each task ends when its memory is free."""
        leaving = []
        room = self._budget_bytes - size_bytes
        while sum(kept.size_bytes for kept in self._kept.values()) > room:
            _, oldest = self._kept.popitem(last=False)
            leaving.append(self._let_go(oldest.value))
        return leaving

    def _let_go(self, value: T) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._end(self._retire(value)))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return task

    async def _end(self, retiring: Coroutine[Any, Any, None]) -> None:
        # Once it has ended, neither the coroutine nor anything else refers to the set.
        try:
            await retiring
        except Exception:
            logger.exception("checkpoints could not be let go")
        await asyncio.to_thread(self._collect)

    def _collect(self) -> None:
        freeze_loaded()  # networks contain many reference cycles
        self._release()
