"""The library as accounts use it: what they add, read, change and remove.

Invariant: an account changes only its own tracks; it also sees the operator's.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np

from serve_app.domain.assets import AssetRecord
from serve_app.domain.errors import BadRequestError, LibraryClosedError, TrackNotFoundError
from serve_app.domain.identity import ID_FIELDS, TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.track_ids import Platform, TrackId, parse_track_id
from serve_app.library.edit import Edit, Entry, added, removed, where_there
from serve_app.library.library import Library, TrackPage
from serve_app.library.query import TrackQuery
from serve_app.library.rows import item_artist_term, item_term, terms_of
from serve_app.library.spelling import normalise
from serve_app.library.track import OPERATOR, LibraryTrack, Place, TrackFile, new_track_id
from serve_app.library.view import Outline
from serve_app.library.writer import LibraryWriter
from serve_app.providers.dumps.acousticbrainz import identity_in
from serve_app.providers.identities.resolver import Resolver, visible_to
from serve_app.providers.tags.reader import Cover, read_cover
from serve_app.services.media_servers import items_of
from serve_app.services.similar.plane import on_a_plane
from serve_app.services.simulation.resolver import SimulatedResolver

Adding = Literal["accounts", "operator"]
BY_OWNER = "owner"
CLOSED = (
    "only the operator adds tracks to this server's library; analyse the audio with POST "
    "/v1/audio-features/upload"
)
NO_DOCUMENT = (
    "no low-level document with a tempo or a key: send the JSON that streaming_extractor_music "
    "writes, with rhythm.bpm, tonal.key_key and tonal.key_scale"
)
NOT_LINKED = (
    "no such {name} is linked with this library; the operator links a media server with `afa link`"
)
NO_TRACK = "no such track is in your library or the operator's"
NO_COVER = "no file of the track that this server can read has a picture in its tags"
MAX_MAPPED = 2000
"""Tracks on a map: as many as a screen can show; a larger library is sampled evenly."""
MAPS_KEPT = 32
MAX_OF_ARTIST = 500
"""Tracks examined to find those of an artist."""


@dataclass(frozen=True, slots=True)
class MappedTrack:
    """A track and its position, -1 to 1 on each axis."""

    track: Outline
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class LibraryMap:
    """Tracks on a plane.

    Attributes:
        model: The model whose vectors were projected; None if there are none.
        total: Tracks that have a vector of that model, on the map or not.
        shown: How much of the vectors' variance the plane shows, 0 to 1.
    """

    model: str | None
    items: list[MappedTrack]
    total: int
    shown: float


class LibraryService:
    """Answers one account at a time."""

    def __init__(
        self,
        library: Library,
        writer: LibraryWriter,
        resolver: Resolver | SimulatedResolver,
        adding: Adding,
    ) -> None:
        """Use the stores; ``adding`` says who may add tracks."""
        self._library = library
        self._writer = writer
        self._resolver = resolver
        self._adding = adding
        self._mapped = lru_cache(MAPS_KEPT)(self._draw)

    async def page(
        self, caller: Caller, query: TrackQuery, limit: int, cursor: str | None
    ) -> TrackPage:
        """List the tracks that the caller sees, in the query's order."""
        return await asyncio.to_thread(
            self._library.page, query, visible_to(caller.owner), limit, cursor
        )

    async def map(self, caller: Caller) -> LibraryMap:
        """Place the tracks the caller sees on a plane, by the model with most vectors of them."""
        version = self._library.version
        return await asyncio.to_thread(self._mapped, caller.owner, version)

    def _draw(self, owner: str, version: int) -> LibraryMap:
        """Draw a map; ``version`` only keys the cache."""
        del version
        owners = visible_to(owner)
        counts = self._library.with_vectors(owners)
        if not counts:
            return LibraryMap(None, [], 0, 0.0)
        model = max(counts, key=lambda one: (counts[one], one))
        tracks = self._library.sample(model, owners, MAX_MAPPED)
        known = self._library.vectors(model).get([track.track_id for track in tracks])
        tracks = [track for track in tracks if track.track_id in known]
        if not tracks:
            return LibraryMap(None, [], 0, 0.0)
        vectors = np.array([known[track.track_id] for track in tracks], np.float32)
        points, shown = on_a_plane(vectors)
        items = [
            MappedTrack(track, x, y) for track, (x, y) in zip(tracks, points.tolist(), strict=True)
        ]
        return LibraryMap(model, items, counts[model], shown)

    def get(self, caller: Caller, track_id: str) -> LibraryTrack:
        """Read a track that the caller sees.

        Raises:
            TrackNotFoundError: There is no track of that id.
        """
        track = self._library.get(track_id)
        if track is None or track.owner not in visible_to(caller.owner):
            raise TrackNotFoundError(NO_TRACK)
        return track

    async def cover(self, caller: Caller, track_id: str) -> Cover:
        """Return the cover art in a track's file.

        Raises:
            TrackNotFoundError: There is no such track, or none of its local files has cover art.
        """
        for file in self.get(caller, track_id).files:
            if file.place is Place.PATH and file.missing_since is None:
                with suppress(OSError):  # deleted since, or in a bucket
                    cover = await asyncio.to_thread(read_cover, FilePath(file.location))
                    if cover is not None:
                        return cover
        raise TrackNotFoundError(NO_COVER)

    def named(self, caller: Caller, artist: str, title: str) -> LibraryTrack:
        """Return the track of that artist and title, however they are spelt; raises as `get`."""
        hits = self._library.named(artist, title, visible_to(caller.owner))
        if not hits:
            raise TrackNotFoundError(NO_TRACK)
        return self.get(caller, hits[0].track_id)

    def of_item(self, caller: Caller, item_id: str, server: str | None) -> tuple[LibraryTrack, str]:
        """Return the track that has this id at a media server, and that server.

        Args:
            caller: Who asks.
            item_id: The server's id of the track.
            server: The server's name, needed if several use the same ids.

        Raises:
            TrackNotFoundError: No track has the id.
            BadRequestError: Several servers use the id.
        """
        found = {
            item.server: track
            for owner in visible_to(caller.owner)
            for track in self._library.of_term(item_term(item_id), owner)
            for item in track.items
            if item.item_id == item_id and server in (None, item.server)
        }
        if not found:
            raise TrackNotFoundError(NOT_LINKED.format(name=f"item {item_id[:80]!r}"))
        if len(found) > 1:
            raise BadRequestError(f"server: name one of {', '.join(sorted(found))}")
        ((its_server, track),) = found.items()
        return track, its_server

    async def of_artist(
        self, caller: Caller, artist: str, server: str | None
    ) -> tuple[list[LibraryTrack], str]:
        """Return the analysed tracks of an artist that a media server has, and that server.

        Args:
            caller: Who asks.
            artist: The server's id of the artist, or the name, however it is spelt.
            server: The server's name, needed if several are linked.

        Raises:
            TrackNotFoundError: There are none.
            BadRequestError: Several servers are linked.
        """
        server = self.server(server)
        tracks = [
            track
            for owner in visible_to(caller.owner)
            for track in self._library.of_term(item_artist_term(artist), owner, MAX_OF_ARTIST)
            if any(item.artist_id == artist for item in items_of(track, server))
        ]
        if not tracks and normalise(artist):
            query = TrackQuery(text=artist, server=server)
            page = await self.page(caller, query, MAX_OF_ARTIST, None)
            tracks = [
                track
                for track in page.items
                if normalise(track.identity.artist) == normalise(artist)
            ]
        tracks = [track for track in tracks if track.embeddings]
        if not tracks:
            raise TrackNotFoundError(NOT_LINKED.format(name=f"artist {artist[:80]!r}"))
        return tracks, server

    def server(self, asked: str | None) -> str:
        """Return the media server that was asked for, or the only one.

        Raises:
            TrackNotFoundError: No server of that name, or none at all, is linked.
            BadRequestError: Several servers are linked, and none was named.
        """
        known = sorted(self._library.servers())
        if asked in known or (asked is None and len(known) == 1):
            return asked or known[0]
        if asked is None and known:
            raise BadRequestError(f"server: name one of {', '.join(known)}")
        raise TrackNotFoundError(NOT_LINKED.format(name=f"server {asked!r}" if asked else "server"))

    async def add(
        self, caller: Caller, identity: TrackIdentity, tags: Sequence[str], file: TrackFile
    ) -> tuple[LibraryTrack, bool]:
        """Add a track; if the account already has it, add the file and what is known of it.

        Returns:
            The track, and whether it is new.

        Raises:
            LibraryClosedError: Only the operator adds tracks.
        """
        self.check_open()
        sources = dict.fromkeys(identity.said(), BY_OWNER)
        new = LibraryTrack(
            new_track_id(),
            replace(identity, source="library"),
            caller.owner,
            sources,
            (file,),
            tuple(tags),
        )

        def extended(track: LibraryTrack) -> LibraryTrack:
            return replace(
                track,
                identity=replace(identity.filled_from(track.identity), source="library"),
                sources={**track.sources, **sources},
                files=track.files_with(file),
                tags=tuple(dict.fromkeys([*track.tags, *tags])),
            )

        track = await self._entered(new, terms_of(identity, file), extended)
        return track, track.track_id == new.track_id

    async def submit(self, caller: Caller, mbid: str, document: object) -> None:
        """Keep what a low-level document of AcousticBrainz's extractor says about a recording.

        The last of several documents counts; names that are already known stay.

        Args:
            caller: Whose library to keep it in.
            mbid: MusicBrainz recording id, in canonical form.
            document: The JSON value that was sent.

        Raises:
            BadRequestError: It is not such a document, or is of another recording.
            LibraryClosedError: Only the operator adds tracks.
        """
        measured = identity_in(document)
        if measured is None or (measured.tempo is None and measured.key is None):
            raise BadRequestError(NO_DOCUMENT)
        if measured.mbid not in (None, mbid):
            raise BadRequestError(
                f"the document's tags say it is of the recording {measured.mbid}, not {mbid}"
            )
        self.check_open()
        measured = replace(measured, mbid=mbid)
        sources = dict.fromkeys(measured.said(), measured.source)
        new = LibraryTrack(new_track_id(), measured, caller.owner, sources)

        def measured_again(track: LibraryTrack) -> LibraryTrack:
            who = replace(
                track.identity.filled_from(measured),
                tempo=measured.tempo,
                key=measured.key,
                mode=measured.mode,
            )
            return replace(track, identity=who, sources={**sources, **track.sources})

        await self._entered(new, [str(TrackId(Platform.MBID, mbid))], measured_again)

    def check_open(self) -> None:
        """Refuse if accounts may not add tracks.

        Raises:
            LibraryClosedError: Only the operator adds tracks.
        """
        if self._adding == "operator":
            raise LibraryClosedError(CLOSED)

    async def link(self, caller: Caller, asset: AssetRecord, track: str | None) -> None:
        """Add the track that an asset is said to be, if any, to its owner's library.

        If only the operator adds tracks, and for test keys, this does nothing: the asset is then
        used for tracks that are already known.
        """
        if track is None or caller.is_test or self._adding == "operator":
            return
        track_id = parse_track_id(track)
        if not isinstance(track_id, TrackId) or track_id.platform not in ID_FIELDS:
            return
        named: dict[str, Any] = {ID_FIELDS[track_id.platform]: track_id.value}
        identity, file = TrackIdentity(**named), TrackFile.of_asset(asset)
        known = self._resolver.at_hand(track_id, caller.owner)
        if known is not None and self._of_terms(caller.owner, terms_of(identity, file)) is None:
            identity = identity.filled_from(replace(known, library_id=None))
        await self.add(caller, identity, (), file)

    async def change(
        self,
        caller: Caller,
        track_id: str,
        known: dict[str, object],
        tags: Sequence[str] | None,
    ) -> LibraryTrack:
        """Change identity fields and tags of a track of the caller's own.

        Args:
            caller: Whose track it is.
            track_id: The library's id.
            known: Fields of `TrackIdentity` to their values; None forgets one.
            tags: The new tags; None leaves them unchanged.

        Raises:
            TrackNotFoundError: There is no track of that id.
            LibraryClosedError: The track is the operator's.
        """
        self._own(caller, track_id)
        defaults = {field.name: field.default for field in fields(TrackIdentity)}
        values = {name: defaults[name] if one is None else one for name, one in known.items()}

        def changed(track: LibraryTrack) -> LibraryTrack:
            return replace(
                track,
                identity=replace(track.identity, **values),  # type: ignore[arg-type]  # by name
                sources={**track.sources, **dict.fromkeys(values, BY_OWNER)},
                tags=track.tags if tags is None else tuple(dict.fromkeys(tags)),
            )

        return await self._written(Edit(track_id, where_there(changed)))

    async def remove(self, caller: Caller, track_id: str) -> None:
        """Remove a track of the caller's own with all its analyses; raises as `change`."""
        self._own(caller, track_id)
        await self._writer.write(Edit(track_id, removed))

    def _own(self, caller: Caller, track_id: str) -> None:
        if self.get(caller, track_id).owner == OPERATOR:
            raise LibraryClosedError("the track is the operator's; only your own can be changed")

    async def _entered(
        self,
        new: LibraryTrack,
        terms: Sequence[str],
        change: Callable[[LibraryTrack], LibraryTrack],
    ) -> LibraryTrack:
        """Change the track of its owner that has one of the terms; if none has, add the new one."""

        def edit() -> Edit:
            known = self._of_terms(new.owner, terms)
            if known is None:
                return Edit(new.track_id, added(new))
            return Edit(known.track_id, where_there(change))

        return await self._written(Entry(new.owner, terms, edit))

    def _of_terms(self, owner: str, terms: Sequence[str]) -> LibraryTrack | None:
        """Return the owner's track that has one of the terms."""
        for term in terms:
            found = self._library.of_term(term, owner)
            if found:
                return found[0]
        return None

    async def _written(self, change: Edit | Entry) -> LibraryTrack:
        track = await self._writer.write(change)
        if track is None:
            raise TrackNotFoundError(NO_TRACK)
        return track
