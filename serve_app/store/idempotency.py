"""Answers remembered under an ``Idempotency-Key``, in the ledger role.

Invariant: while a request with the key runs, and for a day after it, no second one runs.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.store.bus import is_cancelled
from serve_app.store.client import Store

KEPT_S = 24 * 3600
IN_FLIGHT_S, HOLD_AGAIN_S = 15.0, 4.0
"""A key lapses so soon where the process dies that answers it; until then it is held again."""

LONGEST_KEY = 255


@dataclass(frozen=True, slots=True)
class Fresh:
    """The key is new and now taken: run the request, then ``finish`` or ``abandon``.

    Attributes:
        life: The same for a day, whatever becomes of the request; then the key begins anew.
    """

    life: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """The request was answered before; answer the same."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class InFlight:
    """The same request is being answered at this moment."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used with another request."""


IdempotencyState = Fresh | Replay | InFlight | Mismatch


class Idempotency:
    """The table of idempotency keys, one per owner."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, owner: str, key: str, fingerprint: str) -> IdempotencyState:
        """Find out what is known about a key, and take it if nothing is.

        Raises:
            ServiceUnavailableError: The ledger is away.
        """
        record = self._store.keys.idempotency(owner, key)
        # It outlives the record of a request that died, and ends before the holds it made do.
        new_life = secrets.token_hex(8)
        command = ("SET", f"life:{record}", new_life, "NX", "PX", KEPT_S * 1000)
        life = new_life.encode()
        if not await self._store.command(*command):
            life = await self._store.command("GET", f"life:{record}") or life
        word, *rest = await self._store.run(
            "idem_begin", [record], [fingerprint, int(IN_FLIGHT_S * 1000)]
        )
        match word:
            case b"FRESH":
                return Fresh(life.decode())
            case b"MISMATCH":
                return Mismatch()
            case b"IN_FLIGHT":
                return InFlight()
        status, headers, body = rest
        return Replay(int(status), json.loads(headers), body)

    @asynccontextmanager
    async def held(self, owner: str, key: str, fingerprint: str) -> AsyncIterator[None]:
        """Keep a key that is fresh taken while the block runs."""
        holding = asyncio.create_task(self._hold(owner, key, fingerprint))
        try:
            yield
        finally:
            holding.cancel()

    async def _hold(self, owner: str, key: str, fingerprint: str) -> None:
        while not is_cancelled():
            await asyncio.sleep(HOLD_AGAIN_S)
            with suppress(ServiceUnavailableError):
                await self._let_lapse(owner, key, fingerprint, IN_FLIGHT_S)

    async def _let_lapse(self, owner: str, key: str, fingerprint: str, after_s: float) -> None:
        record = self._store.keys.idempotency(owner, key)
        await self._store.run("idem_hold", [record], [fingerprint, int(after_s * 1000)])

    async def finish(
        self,
        owner: str,
        key: str,
        fingerprint: str,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        """Remember the answer for a day, unless the key lapsed and is another request's."""
        await self._store.run(
            "idem_finish",
            [self._store.keys.idempotency(owner, key)],
            [fingerprint, status, json.dumps(dict(headers)), body, KEPT_S * 1000],
        )

    async def abandon(self, owner: str, key: str, fingerprint: str) -> None:
        """Forget a request that left nothing behind, so that it may be tried again.

        A key that lapsed and was taken by another request, or has an answer, stays.
        """
        await self._let_lapse(owner, key, fingerprint, 0.0)
