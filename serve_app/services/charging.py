"""Take payment for one synchronous operation: hold, then charge or give back.

Invariant: a hold ends with the operation; if this process dies in between, the hold is reaped and
nothing is charged. A charged caller gets the answer. A name is charged once for as long as the
ledger remembers ended holds, however many requests use it, at once or one after another.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from serve_app.domain.credits import Balance, HoldClosedError
from serve_app.domain.errors import AfaError, InsufficientCreditsError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

ATTEMPTS_AT_ONCE = 64
CHARGE_AGAIN_S = 1.0
UNPAID = ("voided", "reaped")


def charge_id(request_id: str, sha256: str) -> str:
    """Name the charge for bytes: a repeat with other bytes must not pass as already paid."""
    return f"{request_id}:{hashlib.sha256(sha256.encode()).hexdigest()[:16]}"


def attempt_id(name: str, attempt: int) -> str:
    """Return the id of the hold of an attempt; attempts count from 0."""
    return f"{name}:{attempt}" if attempt else name


class Hold:
    """Credits set aside under a name, in its first attempt that has not ended unpaid.

    Attributes:
        final_cost: What to charge at the end; at most the amount held.
        is_paid: Whether the name has already been charged.
        charged: What this operation was charged; 0 if another of the same name was charged.
        balance: The account's balance, after the charge once it is made.
    """

    def __init__(self, name: str, attempt: int, cost: int, balance: Balance, *, is_paid: bool):
        self.name = name
        self.attempt = attempt
        self.cost = cost
        self.final_cost = cost
        self.is_paid = is_paid
        self.charged = 0
        self.balance = balance

    @property
    def hold_id(self) -> str:
        """The hold's id in the ledger."""
        return attempt_id(self.name, self.attempt)


class Charging:
    """Makes holds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unsettled: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def hold(self, caller: Caller, cost: int, request_id: str) -> AsyncIterator[Hold]:
        """Hold ``cost`` while the body runs; charge when it ends, give back when it raises.

        Args:
            caller: Who pays.
            cost: Credits to hold.
            request_id: An id is charged once: a repeated request whose first attempt was
                charged but never answered is not charged again; its answer states the cost.

        Raises:
            InsufficientCreditsError: The balance does not cover the cost.
            ServiceUnavailableError: The ledger is unavailable; nothing is charged, and what it may
                still hold is reaped. If it fails while the body runs, the charge follows when it is
                back.
        """
        hold = await self.open(caller, cost, f"req:{request_id}")
        try:
            yield hold
            await self.charge(caller, hold)
        except BaseException:
            await asyncio.shield(self.give_back(caller, hold))
            raise
        hold.charged = hold.final_cost

    async def open(self, caller: Caller, cost: int, name: str) -> Hold:
        """Hold credits under a name, shared with every request that holds under it now.

        If cancelled, it gives back what the ledger may already hold.

        Raises:
            InsufficientCreditsError: The balance does not cover the cost.
            ServiceUnavailableError: The ledger is unavailable.
        """
        attempt = 0
        while True:
            hold_id = attempt_id(name, attempt)
            try:
                balance = await self._ledger.reserve(caller, hold_id, cost)
            except asyncio.CancelledError:
                await asyncio.shield(self._void(caller, hold_id))
                raise
            except HoldClosedError as error:
                if error.state not in UNPAID:
                    balance = await self._ledger.balance(caller.account, caller.tier)
                    return Hold(name, attempt, cost, balance, is_paid=True)
                attempt = await self._attempt_after(caller, name, attempt)
                continue
            return Hold(name, attempt, cost, balance, is_paid=False)

    async def _attempt_after(self, caller: Caller, name: str, attempt: int) -> int:
        """Return the next attempt that has not ended unpaid, as far as one read shows."""
        following = range(attempt + 1, attempt + 1 + ATTEMPTS_AT_ONCE)
        ids = [attempt_id(name, number) for number in following]
        states = await self._ledger.hold_states(caller.account, ids)
        going = (n for n, state in zip(following, states, strict=True) if state not in UNPAID)
        return next(going, following[-1])

    async def charge(self, caller: Caller, hold: Hold) -> None:
        """Charge a hold, once for all requests that hold under its name.

        Raises:
            InsufficientCreditsError: Another request gave the hold back, or it expired, and the
                balance no longer covers it.
        """
        if hold.is_paid:
            return
        try:
            await self._commit(caller, hold)
        except ServiceUnavailableError:
            # The charge may have been made, and a charged caller gets the answer.
            hold.charged = hold.final_cost
            task = asyncio.create_task(self._charge_later(caller, hold))
            self._unsettled.add(task)
            task.add_done_callback(self._unsettled.discard)

    async def _commit(self, caller: Caller, hold: Hold) -> None:
        while not hold.is_paid:
            try:
                charge = await self._ledger.charge(caller.account, hold.hold_id, hold.final_cost)
            except HoldClosedError:
                again = await self.open(caller, hold.cost, hold.name)
                hold.attempt, hold.is_paid = again.attempt, again.is_paid
                hold.balance = again.balance
                continue
            hold.charged, hold.balance, hold.is_paid = charge.credits, charge.balance, True

    async def _charge_later(self, caller: Caller, hold: Hold) -> None:
        while True:
            await asyncio.sleep(CHARGE_AGAIN_S)
            try:
                await self._commit(caller, hold)
            except ServiceUnavailableError:
                continue
            except InsufficientCreditsError as error:  # its time was over: the answer was free
                logger.warning("%s: %s", hold.hold_id, error.message)
            return

    async def give_back(self, caller: Caller, hold: Hold) -> None:
        """Give a hold back; if that fails now, the hold is reaped when it expires."""
        if not hold.is_paid:
            await self._void(caller, hold.hold_id)

    async def _void(self, caller: Caller, hold_id: str) -> None:
        with suppress(AfaError):
            await self._ledger.void(caller.account, hold_id)
