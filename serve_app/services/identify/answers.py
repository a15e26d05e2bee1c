"""Remembers earlier answers: to the very same bytes, or to a re-encoded copy of the clip.

Invariant: a copy is as long as the clip, and each part of it is far more alike than clips of
different tracks ever are; a mere overlap or a doubtful likeness is a miss. An answer that nothing
matched holds only as long as the index that was asked is in use.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.landmarks import FRAME_S, MODEL_ID, Fingerprint
from models.fingerprint.sketch import (
    N_VALUES,
    SAME_CLIP,
    parts_likeness,
    sketch_keys,
    sketch_parts,
)
from serve_app.services.identify.identified import Identified
from serve_app.store.cache import Cache

SPACE = "provider"
"""Space of the cache; `Memo` keeps providers' answers there too; none is called identify."""
MAX_DIFFERENCE_S = 0.5
"""Difference in length between copies; an encoder pads a tenth of a second."""
KEEP_MATCH_S = 30 * 86_400.0
KEEP_NO_MATCH_S = 6 * 3600.0
"""Shorter, because a service may learn of a track any day. Failures are not kept at all."""


class IdentifyCache:
    """Keeps answers by a clip's bytes and by its sketches, and which accounts got them."""

    def __init__(self, cache: Cache, generation: Callable[[], str]) -> None:
        """Use a cache.

        Args:
            cache: The cache role.
            generation: Names the state of the fingerprint index.
        """
        self._cache = cache
        self.generation = generation

    async def by_bytes(self, sha256: str) -> Identified | None:
        """Return the answer to exactly these bytes, if it still holds."""
        raw = await self._cache.get(SPACE, _answer_key(sha256))
        if raw is None:
            return None
        found = replace(Identified.from_json(raw), known_as=sha256)
        return found if found.matched or found.generation == self.generation() else None

    async def by_fingerprint(self, fingerprint: Fingerprint) -> Identified | None:
        """Return the answer to the clip that this one is most certainly a copy of."""
        mine = sketch_parts(fingerprint)
        keys = [_sketch_key(key) for key in sketch_keys(mine)]
        clips = {raw.hex() for raw in await self._all(keys) if raw is not None}
        entries = await self._all([_clip_key(clip) for clip in clips])
        alike = {
            clip: parts_likeness(mine, _parts_of(entry))
            for clip, entry in zip(clips, entries, strict=True)
            if entry is not None and _is_as_long(entry, fingerprint)
        }
        best = max(alike, key=lambda clip: (alike[clip], clip), default=None)
        return await self.by_bytes(best) if best and alike[best] >= SAME_CLIP else None

    async def _all(self, keys: list[str]) -> list[bytes | None]:
        return await asyncio.gather(*(self._cache.get(SPACE, key) for key in keys))

    async def put(self, sha256: str, fingerprint: Fingerprint, found: Identified) -> None:
        """Keep an answer; one without sketches (quiet parts) by its bytes only."""
        parts = sketch_parts(fingerprint)
        ttl_s = _keep_s(found)
        values = {_answer_key(sha256): found.to_json()}
        if len(parts):
            values[_clip_key(sha256)] = np.array(
                [fingerprint.n_frames, *parts.flat], "<u4"
            ).tobytes()
        values |= {_sketch_key(key): bytes.fromhex(sha256) for key in sketch_keys(parts)}
        await asyncio.gather(
            *(self._cache.put(SPACE, key, value, ttl_s) for key, value in values.items())
        )

    async def was_told(self, account: str, found: Identified) -> bool:
        """Return whether the account has paid for this earlier answer."""
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


def _clip_key(sha256: str) -> str:
    return f"identify:clip:{MODEL_ID}:{sha256}"


def _sketch_key(key: str) -> str:
    return f"identify:key:{MODEL_ID}:{key}"


def _is_as_long(entry: bytes, fingerprint: Fingerprint) -> bool:
    n_frames = int(np.frombuffer(entry, "<u4", 1)[0])
    return abs(n_frames - fingerprint.n_frames) * FRAME_S <= MAX_DIFFERENCE_S


def _parts_of(entry: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(entry, "<u4", offset=4).astype(np.uint32).reshape(-1, N_VALUES)
