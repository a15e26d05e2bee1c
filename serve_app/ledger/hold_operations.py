"""Sends operations on holds in batches: while one call is under way, the next ones gather.

Invariant: each operation gets its own answer or error within its own time limit. There is no timer:
an operation that finds no call under way is sent in the same turn of the event loop.
"""

import asyncio
import struct
from dataclasses import dataclass

from serve_app.domain.credits import GRACE_MS
from serve_app.store.client import Store
from serve_app.store.in_time import InTime
from serve_app.store.keys import join_member

MOST_OPERATIONS = 256
"""Longest list of one call; such a call blocks the server for about two milliseconds."""

RESERVE, COMMIT, VOID, REAP, HIT = b"r", b"c", b"v", b"x", b"h"
LAYOUT = (
    ("command", "c"),
    *(("account", "H"), ("hold", "H")),
    *(("amount", "d"), ("term", "d"), ("monthly", "d"), ("floor", "d"), ("price", "d")),
    *(("member", "s"), ("fingerprint", "s")),
)
"""A packed operation as ``lua/hold_operations.lua`` reads it; ``s`` is zero-terminated text."""

NUMBERS = struct.Struct("<" + "".join(kind for _, kind in LAYOUT if kind != "s"))


@dataclass(frozen=True, slots=True)
class HoldOperation:
    """One operation; ``lua/hold_operations.lua`` says what the fields mean for each command."""

    command: bytes
    account: str
    hold_id: str
    amount: int = 0
    term: int = 0
    monthly: int = -1
    floor: int = 0
    price: int = 0
    fingerprint: str = ""

    def packed(self, account: int, hold: int) -> bytes:
        """Pack the operation for the script; the places of account and hold count from 1."""
        numbers = (self.amount, self.term, self.monthly, self.floor, self.price)
        text = f"{join_member(self.account, self.hold_id)}\0{self.fingerprint}\0"
        return NUMBERS.pack(self.command, account, hold, *numbers) + text.encode()


Answer = tuple[str, bytes]
Waiting = list[tuple[HoldOperation, "asyncio.Future[Answer]"]]


class HoldOperations:
    """Sends operations, one call at a time, or one per shard on a cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_cluster = store.is_cluster
        self._waiting: dict[str, Waiting] = {}
        self._trips: dict[str, asyncio.Task[None]] = {}

    async def do(self, operation: HoldOperation) -> Answer:
        """Carry out one operation; return its answer and the packed account after its call.

        Raises:
            ServiceUnavailableError: No answer in time; it may have been carried out.
        """
        group = self._store.keys.tag(operation.account) if self._is_cluster else ""
        waiting = self._waiting.setdefault(group, [])
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting.append((operation, answer))
        trip = self._trips.get(group)
        if len(waiting) == 1 and (trip is None or trip.done()):
            asyncio.get_running_loop().call_soon(self._leave, group)
        return await self._store.guard(answer)

    def _leave(self, group: str) -> None:
        # Operations whose caller has gone or has run out of time are not sent.
        waiting = [pair for pair in self._waiting.pop(group, []) if not pair[1].done()]
        if waiting[MOST_OPERATIONS:]:
            self._waiting[group] = waiting[MOST_OPERATIONS:]
        if waiting:
            self._trips[group] = asyncio.create_task(self._travel(group, waiting[:MOST_OPERATIONS]))

    async def _travel(self, group: str, batch: Waiting) -> None:
        try:
            async with InTime(self._store.timeout_s):
                found = await self._exchange([operation for operation, _ in batch])
            for (_, answer), given in zip(batch, found, strict=True):
                if not answer.done():
                    answer.set_result(given)
        except Exception as error:  # noqa: BLE001  each caller gets it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        finally:
            for _, answer in batch:
                answer.cancel()  # only if the trip itself was cancelled: nothing else answers then
            del self._trips[group]
            if group in self._waiting:
                # After the callers that were just answered, to include what they send next.
                asyncio.get_running_loop().call_soon(self._leave, group)

    async def _exchange(self, operations: list[HoldOperation]) -> list[Answer]:
        names = self._store.keys
        accounts: dict[str, int] = {}
        holds: dict[str, int] = {}
        packed = []
        for operation in operations:
            account = accounts.setdefault(operation.account, len(accounts) + 1)
            key = names.hold(operation.account, operation.hold_id)
            packed.append(operation.packed(account, holds.setdefault(key, len(holds) + 1)))
        keys = [*(key for account in accounts for key in names.hold_operations(account)), *holds]
        args: list[str | bytes | int] = [b"".join(packed), GRACE_MS, *accounts]
        reply = await self._store.evaluate("hold_operations", keys, args)
        return [
            (word.decode(), reply[len(operations) + accounts[operation.account] - 1])
            for word, operation in zip(reply, operations, strict=False)
        ]
