"""Further checkpoints beside the chosen ones, for requests that name them.

``serve.multiplexed`` counts models and lets the oldest go while requests still use it; here memory
is counted, and what is in use stays until its last request is done.
"""

import asyncio
import gc
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from serve_app.services.model_exchange import Retire

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ShelfFullError(Exception):
    """A checkpoint alone needs more memory than all named ones may have."""

    def __init__(self, model_id: str, size_bytes: int, budget_bytes: int) -> None:
        super().__init__(model_id, size_bytes, budget_bytes)
        self.model_id = model_id

    def __str__(self) -> str:
        _, size_bytes, budget_bytes = self.args
        return f"{self.model_id} needs {size_bytes} bytes, and named models may have {budget_bytes}"


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    size_bytes: int


class Shelf(Generic[K, T]):
    """Loads what is named, once for all who ask at the same time; the least recently used goes.

    Args:
        load: Gives a warm set of networks for a name, and the bytes of its weights.
        retire: Called with a set that nobody will ask any more; returns when its last request is
            done.
        budget_bytes: Weights that may be kept at the same time.
        release: Called, in a thread, when nothing refers to a set any more.
    """

    def __init__(
        self,
        load: Callable[[K], Awaitable[tuple[T, int]]],
        retire: Retire[T],
        budget_bytes: int,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self._load = load
        self._retire = retire
        self._budget_bytes = budget_bytes
        self._release = release
        self._kept: OrderedDict[K, _Kept[T]] = OrderedDict()
        self._lock = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> list[K]:
        """What is kept, the least recently used first."""
        return list(self._kept)

    @property
    def values(self) -> list[T]:
        """The sets that are kept."""
        return [kept.value for kept in self._kept.values()]

    async def get(self, name: K) -> T:
        """Give the set of a name; the caller begins its request before it awaits anything else.

        Raises:
            ShelfFullError: It alone is larger than the budget.
            Exception: Whatever loading raised.
        """
        if name not in self._kept:
            async with self._lock:  # one at a time, so that memory is counted right
                if name not in self._kept:
                    await self._add(name)
        self._kept.move_to_end(name)
        return self._kept[name].value

    async def _add(self, name: K) -> None:
        value, size_bytes = await self._load(name)
        if size_bytes > self._budget_bytes:
            self._let_go(value)
            raise ShelfFullError(str(name), size_bytes, self._budget_bytes)
        self._kept[name] = _Kept(value, size_bytes)
        while sum(kept.size_bytes for kept in self._kept.values()) > self._budget_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._let_go(oldest.value)

    def _let_go(self, value: T) -> None:
        task = asyncio.create_task(self._retire(value))
        self._retiring.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("checkpoints could not be let go", exc_info=task.exception())
        task.get_loop().run_in_executor(None, self._collect)

    def _collect(self) -> None:
        gc.collect()  # networks are full of cycles
        self._release()
