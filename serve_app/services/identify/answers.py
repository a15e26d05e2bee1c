"""Answers that were given before: to the very same bytes, or to a re-encoded copy of the clip.

Invariant: a copy is recognised by its sketch alone, and only if it is far more alike than clips of
different tracks ever are; a doubtful one is a miss. That nothing matched holds only as long as the
index is the one that was asked.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import MODEL_ID, Fingerprint
from models.fingerprint.sketch import SAME_CLIP, likeness, sketch, sketch_keys
from serve_app.services.identify.identified import Identified
from serve_app.store.cache import Cache

SPACE = "provider"
"""Of the cache; `Memo` keeps providers' answers there too, and no provider is called identify."""
DIGEST_BYTES = 32
KEEP_MATCH_S = 30 * 86_400.0
KEEP_NO_MATCH_S = 6 * 3600.0
"""A service may learn of a track any day. What failed is not kept at all."""


class IdentifyCache:
    """Keeps answers under a clip's bytes and under its sketch, and to whom they were given."""

    def __init__(self, cache: Cache, generation: Callable[[], str]) -> None:
        """Use a cache.

        Args:
            cache: The cache role.
            generation: Names the state of the fingerprint index.
        """
        self._cache = cache
        self.generation = generation

    async def by_bytes(self, sha256: str) -> Identified | None:
        """Give the answer to exactly these bytes, as long as it holds."""
        raw = await self._cache.get(SPACE, _answer_key(sha256))
        if raw is None:
            return None
        found = replace(Identified.from_json(raw), known_as=sha256)
        return found if found.matched or found.generation == self.generation() else None

    async def by_fingerprint(self, fingerprint: Fingerprint) -> Identified | None:
        """Give the answer to the clip that this one is most surely a copy of."""
        mine = sketch(fingerprint)
        keys = [_sketch_key(key) for key in sketch_keys(mine)]
        found = await asyncio.gather(*(self._cache.get(SPACE, key) for key in keys))
        entries = {entry for entry in found if entry is not None and len(entry) > DIGEST_BYTES}
        if not entries:
            return None
        alike = {entry: likeness(mine, _sketch_of(entry)) for entry in entries}
        best = max(entries, key=lambda entry: (alike[entry], entry))
        return await self.by_bytes(best[:DIGEST_BYTES].hex()) if alike[best] >= SAME_CLIP else None

    async def put(self, sha256: str, fingerprint: Fingerprint, found: Identified) -> None:
        """Keep an answer; one without a sketch (silence) under its bytes only."""
        values = sketch(fingerprint)
        entry = bytes.fromhex(sha256) + values.astype("<u4").tobytes()
        ttl_s = _keep_s(found)
        await self._cache.put(SPACE, _answer_key(sha256), found.to_json(), ttl_s)
        await asyncio.gather(
            *(self._cache.put(SPACE, _sketch_key(key), entry, ttl_s) for key in sketch_keys(values))
        )

    async def was_told(self, account: str, found: Identified) -> bool:
        """Tell whether the account has paid for this earlier answer."""
        return await self._cache.get(SPACE, _told_key(account, found.known_as, found)) is not None

    async def note_told(self, account: str, sha256: str, found: Identified) -> None:
        """Remember that the account has paid for an answer to these bytes."""
        for clip in {sha256, found.known_as or sha256}:
            await self._cache.put(SPACE, _told_key(account, clip, found), b"1", _keep_s(found))


def _keep_s(found: Identified) -> float:
    return KEEP_MATCH_S if found.matched else KEEP_NO_MATCH_S


def _told_key(account: str, sha256: str, found: Identified) -> str:
    answer = "match" if found.matched else found.generation
    return f"identify:told:{MODEL_ID}:{account}:{sha256}:{answer}"


def _answer_key(sha256: str) -> str:
    return f"identify:answer:{MODEL_ID}:{sha256}"


def _sketch_key(key: str) -> str:
    return f"identify:sketch:{MODEL_ID}:{key}"


def _sketch_of(entry: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(entry[DIGEST_BYTES:], "<u4").astype(np.uint32)
