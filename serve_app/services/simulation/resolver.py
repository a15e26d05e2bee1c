"""Tracks that exist only for test keys.

Any well-formed track id is a track, except the ones named here.
"""

import hashlib
import uuid
from dataclasses import replace
from typing import Any

from serve_app.domain.identity import ID_FIELDS, TrackIdentity
from serve_app.domain.track_ids import AmbiguousTrackId, TrackId
from serve_app.library.track import OPERATOR
from serve_app.providers.identities.resolution import Resolution
from serve_app.services.simulation.features import MODEL_ID

UNKNOWN_TRACKS = frozenset(
    {"00000000-0000-0000-0000-000000000000", "ZZZZZ0000000", "0" * 22, "00000000000"}
)
UNKNOWN_NAME = "unknown"


class SimulatedResolver:
    """Answers as `Resolver` does, from the question alone."""

    def knows(self, owner: str) -> str:
        """Return the message for a track that does not exist."""
        del owner  # the same for all
        return "no such track is known"

    def at_hand(
        self, track_id: TrackId | AmbiguousTrackId, owner: str = OPERATOR
    ) -> TrackIdentity | None:
        """Return the one track of that identifier."""
        del owner  # the same for all
        if isinstance(track_id, AmbiguousTrackId):
            track_id = track_id.deezer
        if track_id.value in UNKNOWN_TRACKS:
            return None
        return self._identity(str(track_id), track_id)

    async def resolve(
        self, track_id: TrackId | AmbiguousTrackId, owner: str = OPERATOR
    ) -> Resolution | None:
        """Return the one track of that identifier."""
        del owner  # the same for all
        identity = self.at_hand(track_id)
        return None if identity is None else Resolution(identity)

    async def search(self, artist: str, title: str, owner: str = OPERATOR) -> Resolution | None:
        """Return the one track of that name; an artist or title "unknown" has none."""
        del owner  # the same for all
        if UNKNOWN_NAME in (artist.strip().lower(), title.strip().lower()):
            return None
        found = self._identity(f"{artist.strip().lower()}/{title.strip().lower()}", None)
        return Resolution(replace(found, artist=artist.strip(), title=title.strip()))

    async def find_text(
        self, text: str, artist: str, title: str, limit: int, owner: str = OPERATOR
    ) -> list[TrackIdentity]:
        """Return the one track that has these words for its title; "unknown" finds none."""
        del owner  # the same for all
        name = title or text or artist
        if UNKNOWN_NAME in name.lower():
            return []
        found = self._identity(f"words/{name.lower()}", None)
        return [replace(found, artist=artist or found.artist, title=name)][:limit]

    def _identity(self, seed: str, known: TrackId | None) -> TrackIdentity:
        digest = hashlib.sha256(seed.encode()).hexdigest()
        number = int(digest[:8], 16)
        ids: dict[str, Any] = {
            "mbid": str(uuid.UUID(digest[:32], version=4)),
            "isrc": f"QZTST{number % 10_000_000:07d}",
            "spotify_id": f"1{digest[:21]}",
            "apple_id": str(1_000_000_000 + number % 900_000_000),
            "deezer_id": str(1 + number % 900_000_000),
            "youtube_id": f"{digest[:10]}A",
        }
        if known is not None and known.platform in ID_FIELDS:
            ids[ID_FIELDS[known.platform]] = known.value
        return TrackIdentity(
            artist=f"Test Artist {number % 100}",
            title=f"Test Track {number % 10_000}",
            source=MODEL_ID,
            **ids,
        )
