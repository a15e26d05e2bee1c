"""The library's stored features of its tracks, if the checkpoints in use made them."""

import asyncio
from collections.abc import Callable

from pipelines.analysis.records import QuickFeatures, TrackFeatures
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR
from serve_app.services.lookup.feature_cache import quick_of


class LibraryFeatures:
    """Reads features by the id of the library's track."""

    def __init__(self, library: Library, models: Callable[[], str]) -> None:
        """Use ``library``; ``models`` names the checkpoints in use."""
        self._library = library
        self._models = models

    def is_account_s(self, track_id: str) -> bool:
        """Return whether the track is an account's own, not the operator's."""
        track = self._library.get(track_id)
        return track is not None and track.owner != OPERATOR

    async def light(self, track_id: str) -> TrackFeatures | None:
        """Return the features without segments, sections and embedding."""
        track = self._library.get(track_id)
        if track is None or track.analysis is None or track.analysis.made_by != self._models():
            return None
        return track.analysis.features

    async def whole(self, track_id: str) -> TrackFeatures | None:
        """Return all features."""
        if await self.light(track_id) is None:
            return None
        return await asyncio.to_thread(self._library.whole, track_id)

    async def key_bpm(self, track_id: str) -> QuickFeatures | None:
        """Return tempo and key."""
        features = await self.light(track_id)
        return None if features is None else quick_of(features)
