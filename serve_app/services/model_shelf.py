"""Further checkpoints beside the chosen ones, for requests that name them.

``serve.multiplexed`` counts models and lets the oldest go while requests still use it; here memory
is counted, and what is in use stays until its last request is done.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from serve_app.services.model_exchange import Retire

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


class Shelf(Generic[T]):
    """Loads what is named, once for all who ask at the same time; the least recently used goes.

    Args:
        load: Gives a warm set of networks for a model id, and the bytes of its weights.
        retire: Called with a set that nobody will ask any more; returns when its last request is
            done.
        budget_bytes: Weights that may be kept at the same time.
    """

    def __init__(
        self,
        load: Callable[[str], Awaitable[tuple[T, int]]],
        retire: Retire[T],
        budget_bytes: int,
    ) -> None:
        self._load = load
        self._retire = retire
        self._budget_bytes = budget_bytes
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._lock = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def model_ids(self) -> list[str]:
        """What is kept, the least recently used first."""
        return list(self._kept)

    async def get(self, model_id: str) -> T:
        """Give the set of a model; the caller begins its request before it awaits anything else.

        Raises:
            ShelfFullError: It alone is larger than the budget.
            Exception: Whatever loading raised.
        """
        if model_id not in self._kept:
            async with self._lock:  # one at a time, so that memory is counted right
                if model_id not in self._kept:
                    await self._add(model_id)
        self._kept.move_to_end(model_id)
        return self._kept[model_id].value

    async def _add(self, model_id: str) -> None:
        value, size_bytes = await self._load(model_id)
        if size_bytes > self._budget_bytes:
            self._let_go(value)
            raise ShelfFullError(model_id, size_bytes, self._budget_bytes)
        self._kept[model_id] = _Kept(value, size_bytes)
        while sum(kept.size_bytes for kept in self._kept.values()) > self._budget_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._let_go(oldest.value)

    def _let_go(self, value: T) -> None:
        task = asyncio.create_task(self._retire(value))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
