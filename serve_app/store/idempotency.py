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
"""Time until a key lapses if its process dies, and between renewals while the process lives."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """The key is new and now taken: run the request, then ``finish`` or ``abandon``.

    Attributes:
        life: Names the key's use for a day, whatever becomes of the request; then it changes.
    """

    life: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """The request was answered before; repeat the answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class InFlight:
    """The same request is being answered now."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key was used with a different request."""


IdempotencyState = Fresh | Replay | InFlight | Mismatch


class Idempotency:
    """The table of idempotency keys, one per owner."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, owner: str, key: str, fingerprint: str) -> IdempotencyState:
        """Return what is known about a key, and take it if it is new.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        record = self._store.keys.idempotency(owner, key)
        # It outlives the record of a request that died, but not the holds that the request made.
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
        """Hold a fresh key while the block runs."""
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
        """Store the answer for a day, unless the key has lapsed and another request has it."""
        await self._store.run(
            "idem_finish",
            [self._store.keys.idempotency(owner, key)],
            [fingerprint, status, json.dumps(dict(headers)), body, KEPT_S * 1000],
        )

    async def abandon(self, owner: str, key: str, fingerprint: str) -> None:
        """Forget a request that had no effect, so that it may be tried again.

        The key stays if it has an answer, or if it lapsed and another request has taken it.
        """
        await self._let_lapse(owner, key, fingerprint, 0.0)
