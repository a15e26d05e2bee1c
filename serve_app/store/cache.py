"""The cache: bytes by name, with a lifetime. Values may vanish at any time.

Invariant: no method raises because the cache role is unavailable; a read is then a miss.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.telemetry.metrics import CACHE_READS
from serve_app.store.away import Away
from serve_app.store.client import Store

FORMAT = b"\x01"
"""First byte of every stored value."""

LOCK_TTL_S = 30.0
LOCK_POLL_S = 0.05


class Cache:
    """Values under ``space`` and ``key``; a key may be any text of any length."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._away = Away()

    @staticmethod
    def _name(space: str, key: str) -> str:
        return f"c:{space}:{hashlib.sha256(key.encode()).hexdigest()}"

    async def _try(self, *command: str | bytes | int) -> bytes | None:
        if self.is_away():
            return None
        try:
            reply = await self._store.command(*command)
        except ServiceUnavailableError:
            self._away.mark()
            return None
        return reply if isinstance(reply, bytes) else None

    def is_away(self) -> bool:
        """Return whether a command has just failed, so that a miss may not be a real one."""
        return not self._away.is_over

    async def get(self, space: str, key: str) -> bytes | None:
        """Return what was stored; None for a miss."""
        found = await self._try("GET", self._name(space, key))
        outcome = "away" if self.is_away() else "miss" if found is None else "hit"
        CACHE_READS.record(1, space=space, outcome=outcome)
        return found.removeprefix(FORMAT) if found is not None else None

    async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
        """Store a value for ``ttl_s`` seconds."""
        await self._try("SET", self._name(space, key), FORMAT + value, "PX", int(ttl_s * 1000))

    @contextlib.asynccontextmanager
    async def single_flight(self, key: str, wait_s: float) -> AsyncIterator[bool]:
        """Let one caller at a time compute ``key``.

        Yields:
            True to the caller that is to compute. False to one that waited until another had ended
            (look in the cache again), or for ``wait_s``.
        """
        name, token = f"lock:{hashlib.sha256(key.encode()).hexdigest()}", secrets.token_hex(8)
        deadline = time.monotonic() + wait_s
        is_ours = await self._lock(name, token)
        has_waited = not is_ours
        while not is_ours and time.monotonic() < deadline:
            await asyncio.sleep(LOCK_POLL_S)
            is_ours = await self._lock(name, token)
        try:
            yield is_ours and not has_waited
        finally:
            if is_ours:
                with contextlib.suppress(ServiceUnavailableError):
                    await self._store.run("unlock", [name], [token])

    async def _lock(self, name: str, token: str) -> bool:
        if self.is_away():
            return True
        try:
            command = ("SET", name, token, "NX", "PX", int(LOCK_TTL_S * 1000))
            return bool(await self._store.command(*command))
        except ServiceUnavailableError:
            self._away.mark()
            return True
