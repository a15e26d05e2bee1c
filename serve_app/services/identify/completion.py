"""Completes the identity of the operator's tracks in the background: AcoustID, then providers.

Invariant: what tags or a person said stays. A track is asked about once with the same services,
which are stored with the track; if a service could not answer, the track is retried in the next
pass. Accounts' own tracks are never disclosed.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from models.fingerprint.landmarks import N_BINS, CloserLook, Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderError, ProvidersFailedError
from serve_app.library.edit import Change, Edit, where_there
from serve_app.library.library import Library
from serve_app.library.measures import measures_of
from serve_app.library.query import TrackQuery
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.providers.identities.resolution import is_same_name
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.recognisers.acoustid import AcoustId
from serve_app.providers.tags.identity import FILE_NAME, TaggedIdentity
from serve_app.services.identify.enrichment import resolved
from serve_app.services.scan.naming import filled

TOGETHER = 8
"""Tracks of one round, whose answers are written in one commit."""

PAGE, PAGES = 200, 50
"""Tracks read at once, and how many such reads a round makes to get past those already done."""

AGAIN_S = 3600.0
"""Time between two passes; the later one retries tracks that a service failed to answer for."""

SURE = 80
"""Least confidence of AcoustID's answer, in percent: it is kept, not just shown once."""

_NOTHING = np.zeros(0, np.float32)
_SILENT = Fingerprint(_NOTHING, _NOTHING, _NOTHING, 0)
_UNHEARD = CloserLook(_SILENT, np.zeros((N_BINS, 0), np.int8))


class Completion:
    """Goes through the library from the oldest track to the newest, and on as more arrive."""

    def __init__(
        self,
        library: Library,
        resolver: Resolver,
        acoustid: AcoustId | None,
        services: Sequence[str],
    ) -> None:
        """Prepare a pass.

        Args:
            library: The library whose tracks are completed.
            resolver: Asks the providers that are enabled.
            acoustid: Knows recordings by their chromaprint.
            services: Names of all services asked; when they change, tracks are asked about anew.
        """
        self._library, self._resolver, self._acoustid = library, resolver, acoustid
        self._services = ", ".join(services)
        self._cursor: str | None = None
        self._later: set[str] = set()
        self._began_s = time.monotonic()

    async def go_on(self) -> int:
        """Ask about the next tracks.

        Returns:
            How many tracks were asked about.
        """
        edits: list[Edit] = []
        tracks = await asyncio.to_thread(self._next)
        for track in tracks:
            try:
                found, is_all = await self._found(track)
            except (ProviderError, ProvidersFailedError):
                found, is_all = [], False
            if not is_all:
                self._later.add(track.track_id)
            change = self._completed(found, is_all)
            if change(track) != track:
                edits.append(Edit(track.track_id, change))
        if edits:
            await asyncio.to_thread(self._library.write, edits)
        return len(tracks)

    def _next(self) -> list[LibraryTrack]:
        for _ in range(PAGES):
            tracks = self._library.page(
                TrackQuery(sort="added"), [OPERATOR], PAGE, self._cursor
            ).items
            if not tracks:
                self._begin_again()
                break
            todo = [
                track
                for track in tracks
                if track.asked != self._services and track.track_id not in self._later
            ]
            if todo:
                return todo[:TOGETHER]
            self._cursor = tracks[-1].track_id
        return []

    def _begin_again(self) -> None:
        """Start another pass if the last left tracks over and began long enough ago."""
        if self._later and time.monotonic() - self._began_s > AGAIN_S:
            self._later.clear()
            self._cursor, self._began_s = None, time.monotonic()

    async def _found(self, track: LibraryTrack) -> tuple[list[TrackIdentity], bool]:
        """Return what services say of a track, most certain first, and whether all answered."""
        heard = await self._heard(track)
        identity = track.identity
        if heard is not None:
            identity = heard if _is_guessed(track) else identity.filled_from(heard)
        known = await resolved(self._resolver, identity)
        found = [one for one in (heard, known.identity if known else None) if one is not None]
        return found, known is None or not known.failures

    async def _heard(self, track: LibraryTrack) -> TrackIdentity | None:
        length_s = measures_of(track).duration_s
        is_known = track.identity.mbid is not None
        if self._acoustid is None or is_known or track.fingerprint is None or length_s is None:
            return None
        clip = Clip(length_s, _SILENT, _UNHEARD, b"", track.fingerprint)
        if not self._acoustid.accepts(clip):
            return None
        found = await self._acoustid.recognise(clip)
        if found is None or found.confidence < SURE:
            return None
        is_it = _is_guessed(track) or is_same_name(found.identity, track.identity)
        return found.identity if is_it else None

    def _completed(self, found: Sequence[TrackIdentity], is_all: bool) -> Change:
        def complete(track: LibraryTrack) -> LibraryTrack:
            named = TaggedIdentity(track.identity, dict(track.sources))
            if found and _is_guessed(track):
                named = replace(named, identity=replace(track.identity, artist="", title=""))
            for one in found:
                named = filled(named, one, one.source)
            who = replace(named.identity, source="library", library_id=None)
            asked = self._services if is_all else track.asked
            return replace(track, identity=who, sources=named.sources, asked=asked)

        return where_there(complete)


def _is_guessed(track: LibraryTrack) -> bool:
    """Whether the title is only the file's name."""
    return track.sources.get("title") == FILE_NAME
