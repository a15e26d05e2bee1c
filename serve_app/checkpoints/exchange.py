"""Exchange checkpoints of a running service: the new ones are loaded next to the old.

Invariant: there is always a complete set of checkpoints that answers; a request is answered by the
set that it began with, and that set is released when its last request is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from models.checkpoints.cards import ModelCard
from serve_app.checkpoints.freeze import freeze_loaded

logger = logging.getLogger(__name__)

T = TypeVar("T")
Cards = Mapping[str, Sequence[ModelCard]]
Load = Callable[[Cards], Awaitable[T]]
Retire = Callable[[T], Coroutine[Any, Any, None]]


def ids_by_role(cards: Cards) -> dict[str, str]:
    """Return role to the ids of its cards, joined by ``+``."""
    return {role: "+".join(card.model_id for card in chosen) for role, chosen in cards.items()}


@dataclass(frozen=True, slots=True)
class _Loaded(Generic[T]):
    """A warm set of networks, and role to the ids of its checkpoints."""

    networks: T
    ids: dict[str, str]


class Exchange(Generic[T]):
    """The set that serves now, and one kept ready next to it.

    Args:
        load: Returns a warm set of networks for cards.
        retire: Called with a set that gets no more requests; returns when its last request is
            done.
        release: Called, in a thread, when nothing refers to a set any longer.
    """

    def __init__(
        self, load: Load[T], retire: Retire[T], release: Callable[[], None] = lambda: None
    ) -> None:
        self._load = load
        self._retire = retire
        self._release = release
        self._current: _Loaded[T] | None = None
        self._prepared: _Loaded[T] | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> T:
        """The set that answers."""
        if self._current is None:
            raise RuntimeError("nothing is loaded")
        return self._current.networks

    @property
    def serving(self) -> dict[str, str]:
        """Role to ids of the set that answers."""
        return dict(self._current.ids) if self._current else {}

    def holds(self, ids: Mapping[str, str]) -> bool:
        """Return whether that set is loaded, in use or ready."""
        loaded = (self._current, self._prepared)
        return any(one is not None and one.ids == ids for one in loaded)

    async def prepare(self, cards: Cards) -> None:
        """Load a set next to the one in use, in place of any other that was ready.

        Raises:
            CheckpointError: A checkpoint is missing here, or differs from its card.
        """
        self.discard()
        try:
            self._prepared = _Loaded(await self._load(cards), ids_by_role(cards))
        except BaseException:
            asyncio.get_running_loop().run_in_executor(None, self._collect)
            raise
        await asyncio.to_thread(freeze_loaded)

    def switch(self) -> None:
        """Answer with the ready set from now on, and release the old one."""
        if self._prepared is None:
            raise RuntimeError("nothing was prepared")
        old, self._current, self._prepared = self._current, self._prepared, None
        if old is not None:
            self._let_go(old.networks)

    def discard(self) -> None:
        """Release the ready set."""
        discarded, self._prepared = self._prepared, None
        if discarded is not None:
            self._let_go(discarded.networks)

    def _let_go(self, networks: T) -> None:
        task = asyncio.create_task(self._retire(networks))
        self._retiring.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("checkpoints could not be let go", exc_info=task.exception())
        task.get_loop().run_in_executor(None, self._collect)

    def _collect(self) -> None:
        freeze_loaded()  # networks contain many reference cycles
        self._release()
