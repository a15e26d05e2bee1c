"""Features of up to a hundred tracks at once.

Invariant: the price is held before anything is computed, and only resolved slots are charged: each
at the price of a slot, or, if cached slots are free, in the same way as look-ups.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pipelines.analysis.records import TrackFeatures
from serve_app.domain.credits import Balance
from serve_app.domain.errors import (
    AfaError,
    BadRequestError,
    InsufficientCreditsError,
    NotFoundError,
    ServiceUnavailableError,
    TierRequiredError,
    TrackNotFoundError,
)
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.ledger.ledger import Ledger
from serve_app.services.charging import Charging
from serve_app.services.lookup.find import Known, Missing, light
from serve_app.services.lookup.lookup import LookupService

T = TypeVar("T")

CONCURRENT_LOOKUPS = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """One answered id; ``computed_as`` is its cache key if it was no hit."""

    identity: TrackIdentity
    features: TrackFeatures
    computed_as: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """One id whose track must be computed."""

    identity: TrackIdentity
    missing: Missing


Answers = dict[str, Slot | str]
"""The outcome for each id; text is the code of the error that a look-up would return."""

Found = dict[str, Slot | Unknown | str]


@dataclass(frozen=True, slots=True)
class Batch:
    """Slots in the order of the ids; None where an id could not be resolved.

    Attributes:
        reasons: Id of each slot that is None to the code of the error that a look-up would return.
    """

    slots: list[Slot | None]
    reasons: dict[str, str]
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


class BatchService:
    """Looks up many tracks."""

    def __init__(
        self,
        lookup: LookupService,
        ledger: Ledger,
        charging: Charging,
        *,
        cached_free: bool,
    ) -> None:
        """Use ``lookup``; ``cached_free`` is the operator's choice not to charge cached slots."""
        self._lookup = lookup
        self._ledger = ledger
        self._charging = charging
        self._cached_free = cached_free

    async def run(
        self,
        caller: Caller,
        ids: Sequence[str],
        price: int,
        request_id: str,
        *,
        cached_free: bool = False,
    ) -> Batch:
        """Look up all ids; each duplicate gets its own slot.

        Args:
            caller: Who asks and pays.
            ids: Identifiers, in any form.
            price: Price of a slot, in credits.
            request_id: Makes the charge of slots and of hits idempotent.
            cached_free: Whether ``price`` applies only to computed tracks, and hits are counted.

        Raises:
            InsufficientCreditsError: The balance does not cover the cost; nothing was charged.
        """
        if cached_free or self._cached_free:
            return await self._run_as_lookups(caller, ids, price, request_id)
        async with self._charging.hold(caller, price * len(ids), request_id) as hold:
            answers = await self._compute_all(caller, await self._find_all(caller, ids))
            slots, reasons = in_order(ids, answers)
            hold.final_cost = price * sum(slot is not None for slot in slots)
        return Batch(slots, reasons, cache_of(slots), hold.charged, hold.balance)

    async def _run_as_lookups(
        self, caller: Caller, ids: Sequence[str], price: int, request_id: str
    ) -> Batch:
        found = await self._find_all(caller, ids)
        keys = {one.missing.key for one in found.values() if isinstance(one, Unknown)}
        async with self._lookup.paying(caller, price, sorted(keys)) as misses:
            slots, reasons = in_order(ids, await self._compute_all(caller, found))
            answered = {slot.computed_as for slot in slots if slot and slot.computed_as}
            for key in keys - answered:
                misses.give_back(key)
        used, ledger = misses.charged, self._ledger
        balance = misses.balance if keys else await ledger.balance(caller.account, caller.tier)
        # Once the misses are charged they are answered, whatever happens to the hits.
        n_hits = sum(slot is not None for slot in slots) - len(answered)
        try:
            if n_hits:
                charge = await ledger.count_hit(
                    caller.account, caller.tier, hits=n_hits, hit_id=f"hit:{request_id}"
                )
                used, balance = used + charge.credits, charge.balance
        except InsufficientCreditsError as error:
            if not answered:
                raise
            for place, slot in enumerate(slots):
                if slot is not None and slot.computed_as is None:
                    slots[place], reasons[ids[place]] = None, error.code
        except ServiceUnavailableError:
            if not answered:
                raise
        return Batch(slots, reasons, cache_of(slots), used, balance)

    async def _find_all(self, caller: Caller, ids: Sequence[str]) -> Found:
        gate = asyncio.Semaphore(CONCURRENT_LOOKUPS)

        async def find(text: str) -> Slot | Unknown | str:
            async with gate:
                return await code_if_unresolved(self._find(caller, text))

        unique = list(dict.fromkeys(ids))
        return dict(zip(unique, await asyncio.gather(*map(find, unique)), strict=True))

    async def _find(self, caller: Caller, text: str) -> Slot | Unknown | str:
        identity = await self._lookup.identify(caller, text)
        found = await self._lookup.find(caller, identity, light)
        if isinstance(found, Known):
            return Slot(identity, found.features)
        if found.source is None:
            return TrackNotFoundError.code
        if not self._lookup.can_compute(caller):
            return TierRequiredError.code
        return Unknown(identity, found)

    async def _compute_all(self, caller: Caller, found: Found) -> Answers:
        """Compute what is missing, and return it with the other slots."""
        gate = asyncio.Semaphore(CONCURRENT_LOOKUPS)

        async def compute(one: Slot | Unknown | str) -> Slot | str:
            if not isinstance(one, Unknown):
                return one
            async with gate:
                return await code_if_unresolved(self._compute(caller, one))

        answers = await asyncio.gather(*map(compute, found.values()))
        return dict(zip(found, answers, strict=True))

    async def _compute(self, caller: Caller, one: Unknown) -> Slot:
        features = await self._lookup.compute(caller, one.missing)
        return Slot(one.identity, features, one.missing.key)


async def code_if_unresolved(answer: Awaitable[T]) -> T | str:
    """Return the code of an error that leaves a slot empty; re-raise any other.

    Raises:
        AfaError: The whole batch is refused.
    """
    try:
        return await answer
    except (NotFoundError, BadRequestError) as error:
        return error.code
    except AfaError as error:
        if error.status >= 500:
            return error.code
        raise


def in_order(ids: Sequence[str], answers: Answers) -> tuple[list[Slot | None], dict[str, str]]:
    """Return the slots of all ids, and why some are empty."""
    slots = [slot if isinstance(slot := answers[text], Slot) else None for text in ids]
    return slots, {text: code for text, code in answers.items() if isinstance(code, str)}


def cache_of(slots: Sequence[Slot | None]) -> Literal["hit", "miss"]:
    """Return "hit" if there is an answer and all were known, else "miss"."""
    answered = [slot for slot in slots if slot is not None]
    return "hit" if answered and all(slot.computed_as is None for slot in answered) else "miss"
