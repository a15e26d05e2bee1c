"""Answers that were given before: to the very same bytes, or to a re-encoded copy of the clip.

Invariant: a copy is recognised by its sketch alone, and only if it is far more alike than clips of
different tracks ever are; a doubtful one is a miss.
"""

import asyncio

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import MODEL_ID, Fingerprint
from models.fingerprint.sketch import SAME_CLIP, likeness, sketch, sketch_keys
from serve_app.store.cache import Cache

SPACE = "provider"
"""Of the cache; `Memo` keeps providers' answers there too, and no provider is called identify."""
DIGEST_BYTES = 32
KEEP_MATCH_S = 30 * 86_400.0
KEEP_NO_MATCH_S = 6 * 3600.0
"""A track may be added to an index any day. What failed is not kept at all."""


class IdentifyCache:
    """Keeps answers under a clip's bytes and under its sketch."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def by_bytes(self, digest: bytes) -> bytes | None:
        """The answer to exactly these bytes.

        Args:
            digest: SHA-256 of the upload.
        """
        return await self._cache.get(SPACE, _answer_key(digest))

    async def by_fingerprint(self, fingerprint: Fingerprint) -> bytes | None:
        """The answer to the clip that this one is most surely a copy of."""
        mine = sketch(fingerprint)
        keys = [_sketch_key(key) for key in sketch_keys(mine)]
        found = await asyncio.gather(*(self._cache.get(SPACE, key) for key in keys))
        entries = {entry for entry in found if entry is not None and len(entry) > DIGEST_BYTES}
        if not entries:
            return None
        alike = {entry: likeness(mine, _sketch_of(entry)) for entry in entries}
        best = max(entries, key=lambda entry: (alike[entry], entry))
        return await self.by_bytes(best[:DIGEST_BYTES]) if alike[best] >= SAME_CLIP else None

    async def put(
        self, digest: bytes, fingerprint: Fingerprint, answer: bytes, ttl_s: float
    ) -> None:
        """Keep an answer; one without a sketch (silence) under its bytes only."""
        values = sketch(fingerprint)
        entry = digest + values.astype("<u4").tobytes()
        await self._cache.put(SPACE, _answer_key(digest), answer, ttl_s)
        await asyncio.gather(
            *(self._cache.put(SPACE, _sketch_key(key), entry, ttl_s) for key in sketch_keys(values))
        )


def _answer_key(digest: bytes) -> str:
    return f"identify:bytes:{MODEL_ID}:{digest.hex()}"


def _sketch_key(key: str) -> str:
    return f"identify:sketch:{MODEL_ID}:{key}"


def _sketch_of(entry: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(entry[DIGEST_BYTES:], "<u4").astype(np.uint32)
