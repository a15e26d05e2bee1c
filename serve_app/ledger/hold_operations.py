"""Operations on holds travel together: while one call is under way, the next ones gather.

Invariant: each operation gets its own answer or error within its own time. There is no timer: an
operation that finds nothing under way leaves in the same turn of the event loop.
"""

import asyncio
import struct
from dataclasses import dataclass

from serve_app.store.client import Store
from serve_app.store.keys import member

MOST_MOVES = 256
"""Longest list of one call; it keeps the server from others for about two milliseconds."""

ITEM = struct.Struct("<cHHddddd")


@dataclass(frozen=True, slots=True)
class Move:
    """One operation; ``lua/moves.lua`` says what its fields mean for which word."""

    word: bytes
    account: str
    hold_id: str
    amount: int = 0
    term: int = 0
    monthly: int = -1
    floor: int = 0
    price: int = 0
    fingerprint: str = ""

    def packed(self, account: int, hold: int) -> bytes:
        """Write the operation for the script, with the places of account and hold, from 1."""
        numbers = (self.amount, self.term, self.monthly, self.floor, self.price)
        text = f"{member(self.account, self.hold_id)}\0{self.fingerprint}\0"
        return ITEM.pack(self.word, account, hold, *numbers) + text.encode()


Answer = tuple[str, bytes]
Waiting = list[tuple[Move, "asyncio.Future[Answer]"]]


class Moves:
    """Sends operations, one call at a time: on a cluster one per shard."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_cluster = store.is_cluster
        self._waiting: dict[str, Waiting] = {}
        self._trips: dict[str, asyncio.Task[None]] = {}

    async def do(self, move: Move) -> Answer:
        """Carry out one operation; give its word and the packed account after its call.

        Raises:
            ServiceUnavailableError: No answer in time; it may have been carried out.
        """
        group = self._store.keys.tag(move.account) if self._is_cluster else ""
        waiting = self._waiting.setdefault(group, [])
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting.append((move, answer))
        trip = self._trips.get(group)
        if len(waiting) == 1 and (trip is None or trip.done()):
            asyncio.get_running_loop().call_soon(self._leave, group)
        return await self._store.guard(answer)

    def _leave(self, group: str) -> None:
        # Whose caller has gone, or has run out of time, is not sent.
        waiting = [pair for pair in self._waiting.pop(group, []) if not pair[1].done()]
        if waiting[MOST_MOVES:]:
            self._waiting[group] = waiting[MOST_MOVES:]
        if waiting:
            self._trips[group] = asyncio.create_task(self._travel(group, waiting[:MOST_MOVES]))

    async def _travel(self, group: str, batch: Waiting) -> None:
        try:
            async with asyncio.timeout(self._store.timeout_s):
                found = await self._exchange([move for move, _ in batch])
            for (_, answer), given in zip(batch, found, strict=True):
                if not answer.done():
                    answer.set_result(given)
        except Exception as error:  # noqa: BLE001  each caller is told
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
        finally:
            for _, answer in batch:
                answer.cancel()  # only where the trip itself was cancelled: nobody else answers
            del self._trips[group]
            if group in self._waiting:
                # After the callers that were just answered: what they send next goes along.
                asyncio.get_running_loop().call_soon(self._leave, group)

    async def _exchange(self, moves: list[Move]) -> list[Answer]:
        names = self._store.keys
        accounts: dict[str, int] = {}
        holds: dict[str, int] = {}
        items = []
        for move in moves:
            account = accounts.setdefault(move.account, len(accounts) + 1)
            hold = names.hold(move.account, move.hold_id)
            items.append(move.packed(account, holds.setdefault(hold, len(holds) + 1)))
        keys = [*(key for account in accounts for key in names.moves(account)), *holds]
        reply = await self._store.evaluate("moves", keys, [b"".join(items), *accounts])
        return [
            (word.decode(), reply[len(moves) + accounts[move.account] - 1])
            for word, move in zip(reply, moves, strict=False)
        ]
