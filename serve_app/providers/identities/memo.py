"""Remembers what providers answered, including "no such track", and asks once for all waiting.

Invariant: an error is never remembered, and neither is anything that expires (signed addresses are
no part of an identity).
"""

import asyncio
from collections.abc import Awaitable, Callable

from serve_app.domain.identity import TrackIdentity, from_json, to_json
from serve_app.store.cache import Cache

SPACE = "provider"
"""Space of the cache."""
FOUND_TTL_S = 30 * 24 * 3600.0
MISSING_TTL_S = 6 * 3600.0
NOTHING = b""


class Memo:
    """Remembers identities by key."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._asking: dict[str, asyncio.Task[TrackIdentity | None]] = {}

    async def remember(
        self, key: str, ask: Callable[[], Awaitable[TrackIdentity | None]]
    ) -> TrackIdentity | None:
        """Return the remembered answer, or what ``ask`` answers now.

        Callers that come while the same key is being requested share that one call; if one of them
        gives up, the call continues for the others.
        """
        known = await self._cache.get(SPACE, key)
        if known is not None:
            return None if known == NOTHING else from_json(known)
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key, ask))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: str, done: "asyncio.Task[TrackIdentity | None]") -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # marks it as retrieved: all callers may have given up

    async def _ask(
        self, key: str, ask: Callable[[], Awaitable[TrackIdentity | None]]
    ) -> TrackIdentity | None:
        found = await ask()
        if found is None:
            await self._cache.put(SPACE, key, NOTHING, MISSING_TTL_S)
        else:
            await self._cache.put(SPACE, key, to_json(found), FOUND_TTL_S)
        return found
