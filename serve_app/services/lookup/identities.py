"""Who tracks are: the resolver over catalog and providers, as look-ups see it."""

from typing import Protocol

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import AmbiguousTrackId, TrackId
from serve_app.providers.identities.resolver import Resolver


class Identities(Protocol):
    """Knows tracks by identifier and by name."""

    def at_hand(self, track_id: TrackId | AmbiguousTrackId) -> TrackIdentity | None:
        """Give the track of an identifier if that takes no waiting; `by_id` gives the same."""
        ...

    async def by_id(self, track_id: TrackId | AmbiguousTrackId) -> TrackIdentity | None:
        """Give the track of an identifier.

        Raises:
            AmbiguousIdError: It names two tracks.
            ProvidersFailedError: Not found, but not everybody could be asked.
        """
        ...

    async def find(self, artist: str, title: str) -> TrackIdentity | None:
        """Give the track that is named so.

        Raises:
            ProvidersFailedError: Not found, but not everybody could be asked.
        """
        ...


class ResolvedIdentities:
    """The resolver's answers without where each part of them comes from."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def at_hand(self, track_id: TrackId | AmbiguousTrackId) -> TrackIdentity | None:
        """See `Identities`."""
        return self._resolver.at_hand(track_id)

    async def by_id(self, track_id: TrackId | AmbiguousTrackId) -> TrackIdentity | None:
        """See `Identities`."""
        resolution = await self._resolver.resolve(track_id)
        return None if resolution is None else resolution.identity

    async def find(self, artist: str, title: str) -> TrackIdentity | None:
        """See `Identities`."""
        resolution = await self._resolver.search(artist, title)
        return None if resolution is None else resolution.identity
