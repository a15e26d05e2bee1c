"""Take payment for one synchronous operation: hold, then charge or give back.

Invariant: a hold ends with the operation; if this process dies in between, it is reaped and
nothing is charged. Who is charged has got the answer.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from serve_app.domain.credits import Balance, HoldClosedError
from serve_app.domain.errors import AfaError, BadRequestError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

MAX_EARLIER_ATTEMPTS = 20
CHARGE_AGAIN_S = 1.0


def charge_id(request_id: str, sha256: str) -> str:
    """Name the charge for bytes: a repeat with other ones must not pass for what was paid."""
    return f"{request_id}:{hashlib.sha256(sha256.encode()).hexdigest()[:16]}"


class Hold:
    """Credits set aside; ``charged`` and ``balance`` are final once the operation has ended.

    Attributes:
        final_cost: What to charge at the end; at most what was held.
    """

    def __init__(self, hold_id: str, cost: int, balance: Balance, *, is_paid: bool) -> None:
        self.hold_id = hold_id
        self.final_cost = cost
        self.balance = balance
        self.charged = cost
        self.is_paid = is_paid


class Charging:
    """Makes holds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unsettled: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def hold(self, caller: Caller, cost: int, request_id: str) -> AsyncIterator[Hold]:
        """Hold ``cost`` while the body runs; charge at its end, give back when it raises.

        Args:
            caller: Who pays.
            cost: Credits to hold.
            request_id: The same id is charged once: a repeated request whose first attempt was
                charged but never answered is not charged again.

        Raises:
            InsufficientCreditsError: Not covered.
            ServiceUnavailableError: The ledger is away; nothing was held. If it goes away while the
                body runs, the charge follows when it is back, or never after the hold's time.
        """
        hold = await self._open(caller, cost, request_id)
        try:
            yield hold
        except BaseException:
            if not hold.is_paid:
                await asyncio.shield(self._give_back(caller, hold))
            raise
        hold.charged = hold.final_cost
        if hold.is_paid:
            return
        try:
            hold.balance = await self._ledger.commit(caller.account, hold.hold_id, hold.final_cost)
        except ServiceUnavailableError:
            # It may have been carried out, and whoever is charged gets the answer.
            task = asyncio.create_task(self._charge_later(caller, hold))
            self._unsettled.add(task)
            task.add_done_callback(self._unsettled.discard)

    async def _charge_later(self, caller: Caller, hold: Hold) -> None:
        while True:
            await asyncio.sleep(CHARGE_AGAIN_S)
            try:
                await self._ledger.commit(caller.account, hold.hold_id, hold.final_cost)
            except ServiceUnavailableError:
                continue
            except HoldClosedError as error:  # its time was over: the answer was free
                logger.warning("%s", error.message)
            return

    async def _open(self, caller: Caller, cost: int, request_id: str) -> Hold:
        for attempt in range(MAX_EARLIER_ATTEMPTS):
            hold_id = f"req:{request_id}" + (f":{attempt}" if attempt else "")
            try:
                balance = await self._ledger.reserve(caller, hold_id, cost)
            except HoldClosedError as error:
                if error.state == "committed":
                    balance = await self._ledger.balance(caller.account, caller.tier)
                    return Hold(hold_id, cost, balance, is_paid=True)
                continue
            return Hold(hold_id, cost, balance, is_paid=False)
        raise BadRequestError(
            "this request was tried too often; send it with a new Idempotency-Key"
        )

    async def _give_back(self, caller: Caller, hold: Hold) -> None:
        # What cannot be given back now is reaped when its time is over.
        with suppress(AfaError):
            await self._ledger.void(caller.account, hold.hold_id)
