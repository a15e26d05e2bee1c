"""Decides whether a track's features are known; if not, where to keep and what to make them from.

Look-ups of features, of key and tempo, and of many tracks at once all use this decision.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipelines.analysis.records import QuickFeatures, TrackFeatures
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.ledger.jobs.types import ObjectSource, Source
from serve_app.services.audio.sources import TrackAudio
from serve_app.services.lookup.feature_cache import FeatureCache, track_key
from serve_app.services.lookup.library_features import LibraryFeatures
from serve_app.services.simulation.backends import SimulatedAudio

T = TypeVar("T")

Kept = FeatureCache | LibraryFeatures
"""Where features are kept: by a key, or by the id of the library's track."""

Want = Callable[[Kept, str], Awaitable[T | None]]
"""What to look for: `light`, `whole` or `key_bpm`."""


async def light(kept: Kept, key: str) -> TrackFeatures | None:
    """Return features without segments, sections and embedding."""
    return await kept.light(key)


async def whole(kept: Kept, key: str) -> TrackFeatures | None:
    """Return all features."""
    return await kept.whole(key)


async def key_bpm(kept: Kept, key: str) -> QuickFeatures | None:
    """Return tempo and key."""
    return await kept.key_bpm(key)


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """The features are in the library or the cache."""

    features: T


@dataclass(frozen=True, slots=True)
class Missing:
    """The features must be computed.

    Attributes:
        key: Where they will be cached.
        library_id: The library's track to store them with; "" for none.
        source: The audio to compute them from; None if there is none.
    """

    key: str
    source: Source | None
    library_id: str


class Finder:
    """Searches the library and the cache; if they lack the features, it looks for audio."""

    def __init__(
        self,
        cache: FeatureCache,
        audio: TrackAudio | SimulatedAudio,
        library: LibraryFeatures | None,
    ) -> None:
        self._cache = cache
        self._audio = audio
        self._library = library

    async def cached(
        self, caller: Caller, identity: TrackIdentity, want: Want[T]
    ) -> Known[T] | None:
        """Look in the library, then in the cache under the key shared by all who see the track.

        Features found in the library need no query of the cache.
        """
        if self._library is not None and identity.library_id is not None:
            kept = await want(self._library, identity.library_id)
            if kept is not None:
                return Known(kept)
        features = await want(self._cache, self._key(caller, identity))
        return None if features is None else Known(features)

    async def find(
        self, caller: Caller, identity: TrackIdentity, want: Want[T]
    ) -> Known[T] | Missing:
        """Find what is wanted of a track, or what is needed to compute it.

        Results computed from the caller's own asset or for the caller's own track are known only to
        that caller.

        Raises:
            ServiceUnavailableError: It is not known, and a source of audio could not answer.
        """
        shared = await self.cached(caller, identity, want)
        if shared is not None:
            return shared
        source = await self._audio.find(caller, identity)
        library_id = identity.library_id or ""
        if not isinstance(source, ObjectSource):
            return Missing(self._key(caller, identity), source, library_id)
        if not self._is_own(identity):
            library_id = ""  # the caller's audio says nothing about the operator's track
        key = self._cache.key(caller, f"{track_key(identity)}|{source.sha256}", own=True)
        own = await want(self._cache, key)
        return Missing(key, source, library_id) if own is None else Known(own)

    def _key(self, caller: Caller, identity: TrackIdentity) -> str:
        return self._cache.key(caller, track_key(identity), own=self._is_own(identity))

    def _is_own(self, identity: TrackIdentity) -> bool:
        if self._library is None or identity.library_id is None:
            return False
        return self._library.is_account_s(identity.library_id)
