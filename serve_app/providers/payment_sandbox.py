"""A payment provider that takes no money and misbehaves on demand.

Invariant: like a real one, it makes at most one charge per intent id, whatever it answers.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from serve_app.domain.objects import ObjectNotFoundError
from serve_app.domain.payments import PaymentOutcome
from serve_app.store.objects import ObjectStore

KEPT = "payments.json"


class Behaviour(StrEnum):
    """What the sandbox does with the next charge."""

    SUCCEED = "succeed"
    DECLINE = "decline"
    TIME_OUT_BEFORE = "time_out_before"
    TIME_OUT_AFTER = "time_out_after"
    SUCCEED_LATE = "succeed_late"


@dataclass(slots=True)
class SandboxPayments:
    """Charges by script: the behaviours in turn, then success.

    Attributes:
        behaviours: What to do with each new charge.
        outcomes: The known outcome of each intent.
        charged: Amount actually taken per intent.
        calls: Every intent id that ``charge`` was called with.
        store: Keeps charges over restarts, as ``payments.json``; None keeps them in memory.
    """

    behaviours: Iterator[Behaviour] = field(default_factory=lambda: iter(()))
    outcomes: dict[str, PaymentOutcome] = field(default_factory=dict)
    charged: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    store: ObjectStore | None = None
    _is_recalled: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def charge(self, intent_id: str, account: str, amount_minor: int) -> PaymentOutcome:
        """Charge, or misbehave; a second call for an intent returns what the first did."""
        async with self._turn:  # charges are kept in one file
            return await self._charge(intent_id, account, amount_minor)

    async def _charge(self, intent_id: str, account: str, amount_minor: int) -> PaymentOutcome:
        await self._recall()
        self.calls.append(intent_id)
        if intent_id in self.outcomes:
            return self.outcomes[intent_id]
        match next(self.behaviours, Behaviour.SUCCEED):
            case Behaviour.TIME_OUT_BEFORE:
                raise TimeoutError(f"{account}: no answer, nothing charged")
            case Behaviour.TIME_OUT_AFTER:
                await self._take(intent_id, amount_minor)
                raise TimeoutError(f"{account}: no answer, but charged")
            case Behaviour.DECLINE:
                self.outcomes[intent_id] = PaymentOutcome.DECLINED
            case Behaviour.SUCCEED_LATE:
                self.outcomes[intent_id] = PaymentOutcome.PENDING
                self.charged[intent_id] = amount_minor
            case Behaviour.SUCCEED:
                await self._take(intent_id, amount_minor)
        return self.outcomes[intent_id]

    async def look_up(self, intent_id: str) -> PaymentOutcome:
        """Return an intent's outcome; one that succeeds late has succeeded at the next call."""
        async with self._turn:
            await self._recall()
        known = self.outcomes.get(intent_id, PaymentOutcome.NOT_FOUND)
        if known is PaymentOutcome.PENDING:
            self.outcomes[intent_id] = PaymentOutcome.SUCCEEDED
        return known

    async def _recall(self) -> None:
        if self.store is None or self._is_recalled:
            return
        with suppress(ObjectNotFoundError):
            kept = b"".join([chunk async for chunk in self.store.read(KEPT)])
            self.charged = json.loads(kept)
            self.outcomes = dict.fromkeys(self.charged, PaymentOutcome.SUCCEEDED)
        self._is_recalled = True

    async def _take(self, intent_id: str, amount_minor: int) -> None:
        self.charged[intent_id] = amount_minor
        self.outcomes[intent_id] = PaymentOutcome.SUCCEEDED
        if self.store is not None:
            await self.store.put(KEPT, json.dumps(self.charged).encode())
