"""Features of tracks in the cache: a light record that every look-up reads, and the full one.

Invariant: a key names the track, the models, and whose audio it was, so that the result of one
owner's upload is never another owner's answer.
"""

from collections.abc import Callable
from functools import lru_cache

from pipelines.analysis.features import RecordFormatError, from_json, to_json
from pipelines.analysis.records import QuickFeatures, TrackFeatures
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.services.lookup.quick_json import quick_from_json, quick_to_json
from serve_app.store.cache import Cache

LIGHT = "features"
WHOLE = "analysis"
QUICK = "quick"
KEPT_S = 90 * 24 * 3600.0
BRIEF_S = 10.0
"""For results of other checkpoints than the key names: kept only for those now waiting for them."""

PARSED = 4096


def track_key(identity: TrackIdentity) -> str:
    """Return a recording's unique name: its best identifier, or its artist and title."""
    for track_id in identity.ids():
        return str(track_id)
    if identity.library_id is not None:
        return identity.library_id
    return f"name:{identity.artist.casefold()}\x1f{identity.title.casefold()}"


class FeatureCache:
    """Reads and writes features by track."""

    def __init__(
        self,
        cache: Cache,
        models: Callable[[], str],
        is_settled: Callable[[], bool] = lambda: True,
        *,
        is_per_owner: bool = False,
    ) -> None:
        """Use ``cache``.

        Args:
            cache: Where the features are kept.
            models: Names the checkpoints in use, so that a swap starts a fresh cache; see
                `serve_app.checkpoints.choice.models_name`.
            is_settled: Whether all replicas certainly answer with those.
            is_per_owner: Whether each owner has a separate cache, as test keys do.
        """
        self._cache = cache
        self._models = models
        self._is_settled = is_settled
        self._is_per_owner = is_per_owner

    def key(self, caller: Caller, track: str, *, own: bool = False) -> str:
        """Return the cache key of a track.

        Args:
            caller: Who asks.
            track: See `track_key`.
            own: Whether the result is computed from the caller's own asset.
        """
        owner = caller.owner if own or self._is_per_owner else ""
        return f"{self._models()}|{owner}|{track}"

    def shared_key(self, track: str) -> str:
        """Return the key shared by all callers."""
        return f"{self._models()}||{track}"

    @property
    def models(self) -> Callable[[], str]:
        """Return what names the checkpoints in use."""
        return self._models

    def is_away(self) -> bool:
        """Return whether the cache has just failed, so that a miss may not be one."""
        return self._cache.is_away()

    async def light(self, key: str) -> TrackFeatures | None:
        """Return the features without segments, sections and embedding."""
        return _parsed(await self._cache.get(LIGHT, key))

    async def whole(self, key: str) -> TrackFeatures | None:
        """Return everything."""
        return _parsed(await self._cache.get(WHOLE, key))

    async def key_bpm(self, key: str) -> QuickFeatures | None:
        """Return tempo and key: from the features, else as computed separately."""
        features = await self.light(key)
        if features is None:
            found = await self._cache.get(QUICK, key)
            return quick_from_json(found) if found else None
        return quick_of(features)

    async def put(self, key: str, features: TrackFeatures, made_by: str = "") -> None:
        """Store both forms.

        Args:
            key: See `key`; it names the checkpoints in use when the features were requested.
            features: What to store.
            made_by: The checkpoints that made them, if these may be others: while checkpoints are
                swapped, features are kept under the name of those that made them, and under the key
                only for as long as someone waits for them.
        """
        asked, _, rest = key.partition("|")
        kept_s = KEPT_S
        if made_by and made_by != asked:
            await self._put(f"{made_by}|{rest}", features, KEPT_S)
            kept_s = BRIEF_S
        await self._put(key, features, kept_s)

    async def _put(self, key: str, features: TrackFeatures, kept_s: float) -> None:
        await self._cache.put(WHOLE, key, to_json(features), kept_s)
        await self._cache.put(LIGHT, key, to_json(features.outline()), kept_s)

    async def put_quick(self, key: str, features: QuickFeatures) -> None:
        """Store tempo and key; only briefly while checkpoints are swapped."""
        kept_s = KEPT_S if self._is_settled() else BRIEF_S
        await self._cache.put(QUICK, key, quick_to_json(features), kept_s)


def quick_of(features: TrackFeatures) -> QuickFeatures:
    """Return only tempo and key."""
    return QuickFeatures(
        tempo=features.tempo,
        tempo_confidence=features.tempo_confidence,
        key=features.key,
        mode=features.mode,
        camelot=features.camelot,
    )


def _parsed(found: bytes | None) -> TrackFeatures | None:
    return _parse(bytes(found)) if found else None


@lru_cache(maxsize=PARSED)
def _parse(data: bytes) -> TrackFeatures | None:
    try:
        return from_json(data)
    except RecordFormatError:
        return None
