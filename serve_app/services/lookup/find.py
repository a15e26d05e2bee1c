"""Whether a track's features are known, and if not, where they would go and what they are made of.

The one decision under look-ups of features, of key and tempo, and of many tracks at once.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.ledger.jobs.types import ObjectSource, Source
from serve_app.services.audio.sources import TrackAudio
from serve_app.services.lookup.feature_cache import FeatureCache, track_key
from serve_app.services.simulation.backends import SimulatedAudio

T = TypeVar("T")

Want = Callable[[FeatureCache, str], Awaitable[T | None]]
"""How the cache gives what is asked for: `FeatureCache.light`, `.whole` or `.key_bpm`."""


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """The cache has it."""

    features: T


@dataclass(frozen=True, slots=True)
class Missing:
    """It has to be computed.

    Attributes:
        key: Where it will be cached.
        source: The audio to compute it from; None when there is none.
    """

    key: str
    source: Source | None


class Finder:
    """Looks in the cache, and for audio where the cache has nothing."""

    def __init__(self, cache: FeatureCache, audio: TrackAudio | SimulatedAudio) -> None:
        self._cache = cache
        self._audio = audio

    async def cached(
        self, caller: Caller, identity: TrackIdentity, want: Want[T]
    ) -> Known[T] | None:
        """Look in the cache under the key that all callers share; no further."""
        features = await want(self._cache, self._cache.key(caller, track_key(identity)))
        return None if features is None else Known(features)

    async def find(
        self, caller: Caller, identity: TrackIdentity, want: Want[T]
    ) -> Known[T] | Missing:
        """Decide whether what is wanted of a track is known.

        What was computed from the caller's own asset is known to that caller alone.

        Raises:
            ServiceUnavailableError: Not known, and a source of audio could not answer.
        """
        shared = await self.cached(caller, identity, want)
        if shared is not None:
            return shared
        track = track_key(identity)
        source = await self._audio.find(caller, identity)
        if not isinstance(source, ObjectSource):
            return Missing(self._cache.key(caller, track), source)
        key = self._cache.key(caller, f"{track}|{source.sha256}", own=True)
        own = await want(self._cache, key)
        return Missing(key, source) if own is None else Known(own)
