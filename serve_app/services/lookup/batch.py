"""Features of up to a hundred tracks at once.

Invariant: the price of all slots is held before anything is computed, and only slots that were
resolved are charged.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.services.lookup.find import Known
from serve_app.services.lookup.lookup import LookupService

CONCURRENT_LOOKUPS = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """One answered id."""

    identity: TrackIdentity
    features: TrackFeatures
    is_hit: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Slots in the order of the ids; None where an id could not be resolved.

    Attributes:
        reasons: Id of each slot that is None to the code of the error that a look-up would give.
    """

    slots: list[Slot | None]
    reasons: dict[str, str]
    cache: Literal["hit", "miss"]
    credits_used: int
    balance: Balance


class BatchService:
    """Looks many tracks up."""

    def __init__(
        self,
        lookup: LookupService,
        ledger: Ledger,
        charging: Charging,
        *,
        cached_free: bool = False,
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
        slot_price: int,
        request_id: str,
        *,
        cached_free: bool = False,
    ) -> Batch:
        """Look all ids up; duplicates are slots of their own.

        Raises:
            InsufficientCreditsError: All slots together are not covered; nothing was charged.
        """
        is_hit_free = cached_free or self._cached_free
        async with self._charging.hold(caller, slot_price * len(ids), request_id) as hold:
            unique = list(dict.fromkeys(ids))
            gate = asyncio.Semaphore(CONCURRENT_LOOKUPS)
            answers = await asyncio.gather(*(self._slot(caller, text, gate) for text in unique))
            by_id = dict(zip(unique, answers, strict=True))
            reasons = {text: code for text, code in by_id.items() if isinstance(code, str)}
            known = {text: slot for text, slot in by_id.items() if not isinstance(slot, str)}
            slots = [known.get(text) for text in ids]
            resolved = [slot for slot in slots if slot is not None]
            hits = [slot for slot in resolved if slot.is_hit]
            charged = len(resolved) - (len(hits) if is_hit_free else 0)
            hold.final_cost = slot_price * charged
        credits_used, balance = hold.charged, hold.balance
        if is_hit_free and hits:
            # Once the misses are charged they are answered, whatever becomes of the hits.
            try:
                charge = await self._ledger.count_hit(
                    caller.account, caller.tier, hits=len(hits), hit_id=f"hit:{request_id}"
                )
                credits_used, balance = credits_used + charge.credits, charge.balance
            except InsufficientCreditsError:
                if not credits_used:
                    raise
                for text, slot in zip(ids, slots, strict=True):
                    if slot is not None and slot.is_hit:
                        reasons[text] = InsufficientCreditsError.code
                slots = [slot if slot is not None and not slot.is_hit else None for slot in slots]
            except ServiceUnavailableError:
                if not credits_used:
                    raise
        is_cached = len(hits) == len(resolved)
        return Batch(slots, reasons, "hit" if is_cached else "miss", credits_used, balance)

    async def _slot(self, caller: Caller, text: str, gate: asyncio.Semaphore) -> Slot | str:
        async with gate:
            try:
                identity = await self._lookup.identify(text)
                return await self._answer(caller, identity)
            except (NotFoundError, BadRequestError) as error:
                return error.code
            except AfaError as error:
                if error.status >= 500:
                    return error.code
                raise

    async def _answer(self, caller: Caller, identity: TrackIdentity) -> Slot | str:
        found = await self._lookup.find(caller, identity, FeatureCache.light)
        if isinstance(found, Known):
            return Slot(identity, found.features, is_hit=True)
        if found.source is None:
            return TrackNotFoundError.code
        if not self._lookup.can_compute(caller):
            return TierRequiredError.code
        return Slot(identity, await self._lookup.compute(caller, found), is_hit=False)
