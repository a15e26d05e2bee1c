"""Tools that this process answers, if no service runs."""

import asyncio
from functools import cached_property
from pathlib import Path

from afa.analyzer import Analyzer
from serve_app.api.wire.features import ExtendedFeatures, Features, to_canonical, to_extended
from serve_app.api.wire.library import LibraryTrackBody, track_body
from serve_app.api.wire.similar import Filters, SimilarTrack, similar_track
from serve_app.cli.identify import OwnIndex
from serve_app.cli.mcp.answers import Identified, UnansweredError
from serve_app.composition.files import LocalFiles
from serve_app.domain.track_ids import readings
from serve_app.library.library import Library
from serve_app.library.query import TrackQuery
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.providers.tags.reader import read_tags
from serve_app.services.similar.neighbours import LibraryNeighbours
from serve_app.services.similar.search import Search
from serve_app.services.similar.wanted import Seed

OWNERS = (OPERATOR,)


class HereBackend:
    """See `serve_app.cli.mcp.server.Backend`."""

    def __init__(self, files: LocalFiles, library: Library) -> None:
        self._files = files
        self._library = library

    @cached_property
    def _analyzer(self) -> Analyzer:
        return Analyzer()

    async def analyse(self, path: Path) -> ExtendedFeatures:
        """Analyse a file; the first call loads the checkpoints."""

        def hear() -> ExtendedFeatures:
            heard, tags = self._analyzer.analyze(path), read_tags(path)
            return to_extended(heard.record, tags.artist, tags.title)

        return await asyncio.to_thread(hear)

    async def look_up(self, track_id: str) -> Features:
        """Return the features of a track of the library by its id."""
        return features_of(await asyncio.to_thread(self._of_id, track_id))

    async def look_up_name(self, artist: str, title: str) -> Features:
        """Return the features of a track of the library by its names."""

        def find() -> LibraryTrack | None:
            self._library.follow()
            hits = self._library.named(artist, title, OWNERS)
            return self._library.get(hits[0].track_id) if hits else None

        return features_of(analysed(await asyncio.to_thread(find), f"{artist} - {title}"))

    async def similar(self, track_id: str, filters: Filters) -> list[SimilarTrack]:
        """Find tracks that sound like one."""

        def search() -> list[SimilarTrack]:
            seed = self._of_id(track_id)
            wanted = filters.wanted([Seed(track=track_id)])
            _, found = Search(LibraryNeighbours(self._library)).similar(OPERATOR, wanted, [seed])
            return [similar_track(one) for one in found]

        return await asyncio.to_thread(search)

    async def identify(self, path: Path) -> Identified:
        """Return which track of this installation's index a recording is."""
        found = await asyncio.to_thread(
            lambda: OwnIndex(self._files, self._library).best_match(path)
        )
        if found is None:
            return Identified(matched=False)
        who, match = found
        return Identified(
            matched=True, artist=who.artist, title=who.title, confidence=match.confidence
        )

    async def search(self, query: TrackQuery, limit: int) -> list[LibraryTrackBody]:
        """Find tracks of the library."""

        def find() -> list[LibraryTrackBody]:
            self._library.follow()
            return [track_body(one) for one in self._library.page(query, OWNERS, limit).items]

        return await asyncio.to_thread(find)

    def _of_id(self, text: str) -> LibraryTrack:
        self._library.follow()
        hits = [hit for one in readings(text) for hit in self._library.by_id(one, OWNERS)]
        return analysed(self._library.get(hits[0].track_id) if hits else None, text)


def analysed(track: LibraryTrack | None, name: str) -> LibraryTrack:
    """Return the track if it exists and has an analysis.

    Raises:
        UnansweredError: It does not exist, or has none.
    """
    if track is None:
        raise UnansweredError(
            f"{name} is not in the library; find tracks with library_search, or add music with "
            "`afa scan FOLDER`"
        )
    if track.analysis is None:
        raise UnansweredError(f"{name} is not analysed yet; run `afa scan` on its folder")
    return track


def features_of(track: LibraryTrack) -> Features:
    """Return the features of an analysed track."""
    if track.analysis is None:
        raise UnansweredError(track.track_id)
    return to_canonical(track.analysis.features, track.identity.artist, track.identity.title)
