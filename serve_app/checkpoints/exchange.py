"""Exchange checkpoints under a running service: the new ones are loaded beside the old.

Invariant: there is always a complete set of checkpoints that answers; a request is answered by the
set that it began with, and that set is let go when its last request is done.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import CardError, ModelCard
from serve_app.checkpoints.choice import (
    POLL_S,
    SWAP_POLL_S,
    Choices,
    ModelChoicesPort,
    Proposal,
    ReplicaReport,
)
from serve_app.checkpoints.garbage import settle
from serve_app.domain.errors import ServiceUnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Cards = Mapping[str, Sequence[ModelCard]]
Load = Callable[[Cards], Awaitable[T]]
Retire = Callable[[T], Coroutine[Any, Any, None]]

START_LIMIT_S = 60.0
RETRY_S = 10.0
"""Pause after a choice could not be loaded."""


def ids_by_role(cards: Cards) -> dict[str, str]:
    """Give role to the ids of its cards, joined by ``+``."""
    return {role: "+".join(card.model_id for card in chosen) for role, chosen in cards.items()}


class Exchange(Generic[T]):
    """What serves now, and what is held ready beside it.

    Args:
        load: Gives a warm set of networks for cards.
        retire: Called with a set that nobody will ask any more; returns when its last request is
            done.
        release: Called, in a thread, when nothing refers to a set any more.
    """

    def __init__(
        self, load: Load[T], retire: Retire[T], release: Callable[[], None] = lambda: None
    ) -> None:
        self._load = load
        self._retire = retire
        self._release = release
        self._current: tuple[T, dict[str, str]] | None = None
        self._beside: tuple[T, dict[str, str]] | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def current(self) -> T:
        """The set that answers."""
        if self._current is None:
            raise RuntimeError("nothing is loaded")
        return self._current[0]

    @property
    def serving(self) -> dict[str, str]:
        """Role to ids of the set that answers."""
        return dict(self._current[1]) if self._current else {}

    def holds(self, ids: Mapping[str, str]) -> bool:
        """Tell whether that set is ready, in use or beside."""
        return any(kept is not None and kept[1] == ids for kept in (self._current, self._beside))

    async def prepare(self, cards: Cards) -> None:
        """Load a set beside the one in use, in place of any other that was beside.

        Raises:
            CheckpointError: A checkpoint is not here, or not what its card says.
        """
        self.discard()
        try:
            self._beside = await self._load(cards), ids_by_role(cards)
        except BaseException:
            asyncio.get_running_loop().run_in_executor(None, self._collect)
            raise
        await asyncio.to_thread(settle)

    def switch(self) -> None:
        """Answer with the set beside from now on, and let the old one go."""
        if self._beside is None:
            raise RuntimeError("nothing was prepared")
        old, self._current, self._beside = self._current, self._beside, None
        if old is not None:
            self._let_go(old[0])

    def discard(self) -> None:
        """Let the set beside go."""
        beside, self._beside = self._beside, None
        if beside is not None:
            self._let_go(beside[0])

    def _let_go(self, kept: T) -> None:
        task = asyncio.create_task(self._retire(kept))
        self._retiring.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("checkpoints could not be let go", exc_info=task.exception())
        task.get_loop().run_in_executor(None, self._collect)

    def _collect(self) -> None:
        settle()  # networks are full of cycles
        self._release()


class Follower(Generic[T]):
    """Keeps one replica's checkpoints at the operator's choice, and reports what it serves.

    Args:
        choices: Where the choice is kept.
        cards: Gives the cards of every role for a choice; may refuse it with ``CardError``.
        roles: Roles whose checkpoints this replica runs.
        exchange: What it exchanges.
        replica: The replica's id.
        deployment: Its deployment.
    """

    def __init__(
        self,
        choices: ModelChoicesPort,
        cards: Callable[[Mapping[str, str]], Cards],
        roles: Sequence[str],
        exchange: Exchange[T],
        replica: str,
        deployment: str,
    ) -> None:
        self._choices = choices
        self._cards = cards
        self._roles = tuple(roles)
        self._exchange = exchange
        self._replica = replica
        self._deployment = deployment
        self._loading: tuple[dict[str, str], asyncio.Task[None]] | None = None
        self._failed: tuple[dict[str, str], str, float] | None = None
        self._task: asyncio.Task[None] | None = None
        self.chosen: Mapping[str, str] = {}

    async def start(self) -> None:
        """Load what is chosen, then follow; returns when the replica can answer.

        Raises:
            CheckpointError: A chosen checkpoint is not here, or not what its card says.
            CardError: The choice names what this installation does not know or allow.
            ServiceUnavailableError: Nobody could say what is chosen.
        """
        cards = await self._first_choice()
        while not self._exchange.holds(ids_by_role(cards)):
            await self._exchange.prepare(cards)
            cards = await self._first_choice()  # a swap may have ended meanwhile
        self._exchange.switch()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Follow no longer."""
        tasks = [self._task, self._loading[1] if self._loading else None]
        for task in tasks:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _first_choice(self) -> dict[str, Sequence[ModelCard]]:
        choices = await self._first_read()
        self.chosen = choices.chosen
        return self._mine(choices.chosen)

    async def _first_read(self) -> Choices:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + START_LIMIT_S
        while True:
            try:
                return await self._choices.read()
            except ServiceUnavailableError:
                if loop.time() > give_up_s:
                    raise
                await asyncio.sleep(POLL_S)

    async def _follow(self) -> None:
        while True:
            pause_s = POLL_S
            try:
                choices = await self._choices.read()
                await self._choices.report(self.step(choices))
                if choices.proposal is not None:
                    pause_s = SWAP_POLL_S
            except ServiceUnavailableError:
                pass  # serve what is loaded
            except Exception:  # a replica that follows no longer would keep its checkpoints forever
                logger.exception("%s cannot follow the choice", self._deployment)
            await asyncio.sleep(pause_s)

    def step(self, choices: Choices) -> ReplicaReport:
        """Take the next step towards the choice and the proposal, without waiting for any."""
        self.chosen = choices.chosen
        proposal = choices.proposal if self._concerns_me(choices.proposal) else None
        try:
            error = self._reach(choices.chosen, proposal)
        except CardError as refusal:
            error = str(refusal)
        report = ReplicaReport(
            self._replica,
            self._deployment,
            self._exchange.serving,
            error=error,
            knows=proposal.token if proposal is not None else "",
        )
        if proposal is not None:
            ids = self._ready_ids(choices.chosen, proposal)
            if ids:
                return replace(report, ready_for=proposal.token, ready_ids=ids)
        return report

    def _concerns_me(self, proposal: Proposal | None) -> bool:
        return proposal is not None and proposal.role in self._roles

    def _mine(self, chosen: Mapping[str, str]) -> dict[str, Sequence[ModelCard]]:
        cards = self._cards(chosen)
        return {role: cards[role] for role in self._roles}

    def _wanted(
        self, chosen: Mapping[str, str], proposal: Proposal | None
    ) -> dict[str, Sequence[ModelCard]]:
        wanted = dict(chosen)
        if proposal is not None:
            wanted.pop(proposal.role, None)
            if proposal.model_id:
                wanted[proposal.role] = proposal.model_id
        return self._mine(wanted)

    def _ready_ids(self, chosen: Mapping[str, str], proposal: Proposal) -> str:
        """Give what would serve the proposed role, if it is held ready."""
        try:
            ids = ids_by_role(self._wanted(chosen, proposal))
        except CardError:
            return ""
        return ids[proposal.role] if self._exchange.holds(ids) else ""

    def _reach(self, chosen: Mapping[str, str], proposal: Proposal | None) -> str:
        """Switch to the choice if it is ready, else load what is missing; give what went wrong."""
        if proposal is None:
            cards = self._mine(chosen)
            if not self._exchange.holds(ids_by_role(cards)):
                return self._prepare(cards)
            self._switch_to(cards)
            self._stop_loading()
            self._exchange.discard()
            self._failed = None  # the next swap tries afresh
            return ""
        with contextlib.suppress(CardError):  # the swap may be the way out of a broken choice
            self._switch_to(self._mine(chosen))
        wanted = self._wanted(chosen, proposal)
        return "" if self._exchange.holds(ids_by_role(wanted)) else self._prepare(wanted)

    def _switch_to(self, cards: Cards) -> None:
        """Answer with these checkpoints if they are held ready."""
        ids = ids_by_role(cards)
        if ids != self._exchange.serving and self._exchange.holds(ids):
            self._exchange.switch()
            logger.info("%s serves %s", self._deployment, ids)

    def _prepare(self, cards: Cards) -> str:
        """Start loading, or see how it goes."""
        ids = ids_by_role(cards)
        if self._loading is not None and self._loading[0] == ids:
            return ""
        now_s = asyncio.get_running_loop().time()
        if self._failed is not None and self._failed[0] == ids and now_s < self._failed[2]:
            return self._failed[1]
        self._stop_loading()
        self._loading = ids, asyncio.create_task(self._load(cards, ids))
        return ""

    async def _load(self, cards: Cards, ids: dict[str, str]) -> None:
        try:
            await self._exchange.prepare(cards)
            self._failed = None
        except Exception as error:  # whatever a checkpoint does, the old one goes on
            told = isinstance(error, CheckpointError | CardError)
            message = str(error) if told else f"{type(error).__name__}: {error}"
            logger.warning("cannot load %s", ids, exc_info=error)
            self._failed = ids, message, asyncio.get_running_loop().time() + RETRY_S
        finally:
            if self._loading is not None and self._loading[1] is asyncio.current_task():
                self._loading = None

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._loading[1].cancel()
            self._loading = None
