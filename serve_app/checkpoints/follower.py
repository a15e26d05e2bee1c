"""Let a replica follow the operator's choice of checkpoints, and report its progress.

Invariant: a step never waits for a load, and a load that fails changes no answer.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

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
from serve_app.checkpoints.exchange import Cards, Exchange, ids_by_role
from serve_app.domain.errors import ServiceUnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_LIMIT_S = 60.0
RETRY_S = 10.0
"""Pause after a choice failed to load."""


@dataclass(frozen=True, slots=True)
class _Loading:
    """A set of checkpoints, role to ids, that is being loaded."""

    ids: dict[str, str]
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Failure:
    """A set that could not be loaded; ``retry_at_s`` is in the event loop's time."""

    ids: dict[str, str]
    message: str
    retry_at_s: float


class Follower(Generic[T]):
    """Keeps a replica's checkpoints at the operator's choice, and reports what it serves.

    Args:
        choices: Where the choice is kept.
        cards: Returns the cards of every role for a choice; may refuse it with ``CardError``.
        roles: Roles of which this replica runs the checkpoints.
        exchange: Exchanges its checkpoints.
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
        self._loading: _Loading | None = None
        self._failure: _Failure | None = None
        self._task: asyncio.Task[None] | None = None
        self.chosen: Mapping[str, str] = {}

    async def start(self) -> None:
        """Load what is chosen, then follow; returns when the replica can answer.

        Raises:
            CheckpointError: A checkpoint is missing here, or differs from its card.
            CardError: The cards cannot be read; or a chosen one is missing, or its checkpoint.
            ServiceUnavailableError: The choice could not be read.
        """
        try:
            cards = await self._first_choice()
            while not self._exchange.holds(ids_by_role(cards)):
                await self._exchange.prepare(cards)
                cards = await self._first_choice()  # a swap may have ended in the meantime
        except (CardError, CheckpointError) as error:
            told = str(error)
            of_choice = [role for role, model_id in self.chosen.items() if model_id in told]
            if not of_choice:
                raise
            back = ", ".join(f"`afa models swap {role} default`" for role in of_choice)
            raise CardError(f"{told.rstrip('.')}. It was swapped in; back with {back}") from error
        self._exchange.switch()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        tasks = [self._task, self._loading.task if self._loading else None]
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
            except Exception:  # otherwise the replica would keep its checkpoints forever
                logger.exception("%s cannot follow the choice", self._deployment)
            await asyncio.sleep(pause_s)

    def step(self, choices: Choices) -> ReplicaReport:
        """Take the next step towards the choice and the proposal, without waiting for either."""
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
        """Return the ids that would serve the proposed role, if they are ready."""
        try:
            ids = ids_by_role(self._wanted(chosen, proposal))
        except CardError:
            return ""
        return ids[proposal.role] if self._exchange.holds(ids) else ""

    def _reach(self, chosen: Mapping[str, str], proposal: Proposal | None) -> str:
        """Switch to the choice if it is ready, else load what is missing; return any error."""
        if proposal is None:
            cards = self._mine(chosen)
            if not self._exchange.holds(ids_by_role(cards)):
                return self._prepare(cards)
            self._switch_to(cards)
            self._stop_loading()
            self._exchange.discard()
            self._failure = None  # the next swap starts afresh
            return ""
        with contextlib.suppress(CardError):  # the swap may be the way to fix a broken choice
            self._switch_to(self._mine(chosen))
        wanted = self._wanted(chosen, proposal)
        return "" if self._exchange.holds(ids_by_role(wanted)) else self._prepare(wanted)

    def _switch_to(self, cards: Cards) -> None:
        """Answer with these checkpoints if they are ready."""
        ids = ids_by_role(cards)
        if ids != self._exchange.serving and self._exchange.holds(ids):
            self._exchange.switch()
            logger.info("%s serves %s", self._deployment, ids)

    def _prepare(self, cards: Cards) -> str:
        """Start loading unless it is in progress; return the error of a recent failure."""
        ids = ids_by_role(cards)
        if self._loading is not None and self._loading.ids == ids:
            return ""
        now_s = asyncio.get_running_loop().time()
        failure = self._failure
        if failure is not None and failure.ids == ids and now_s < failure.retry_at_s:
            return failure.message
        self._stop_loading()
        self._loading = _Loading(ids, asyncio.create_task(self._load(cards, ids)))
        return ""

    async def _load(self, cards: Cards, ids: dict[str, str]) -> None:
        try:
            await self._exchange.prepare(cards)
            self._failure = None
        except Exception as error:  # whatever a checkpoint does, the old one stays in use
            told = isinstance(error, CheckpointError | CardError)
            message = str(error) if told else f"{type(error).__name__}: {error}"
            logger.warning("cannot load %s", ids, exc_info=error)
            retry_at_s = asyncio.get_running_loop().time() + RETRY_S
            self._failure = _Failure(ids, message, retry_at_s)
        finally:
            if self._loading is not None and self._loading.task is asyncio.current_task():
                self._loading = None

    def _stop_loading(self) -> None:
        if self._loading is not None:
            self._loading.task.cancel()
            self._loading = None
