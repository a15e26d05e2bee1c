"""MusicBrainz web service 2: recordings by MBID, ISRC or streaming address, and by name.

References:
    MusicBrainz API, https://musicbrainz.org/doc/MusicBrainz_API. Core data is CC0.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from pydantic import Field

from serve_app.domain.identity import ID_FIELDS, TrackIdentity
from serve_app.domain.providers import (
    Match,
    ProviderBusyError,
    ProviderTerms,
    ProviderUnavailableError,
    RateLimit,
    RateLimiter,
)
from serve_app.domain.track_ids import InvalidTrackIdError, Platform, TrackId, parse_track_id
from serve_app.library.spelling import ranked, search_words
from serve_app.providers.web.http_client import Params, ProviderClient, Reply, retry_after
from serve_app.providers.web.wire import Wire, known_id, parse, seconds, year_of

W = TypeVar("W", bound=Wire)
NAME = "musicbrainz"
LIMIT = RateLimit(1, 1.0)
RECORDING_PARTS = "isrcs artists url-rels releases release-groups genres tags"
LINKED = (Platform.SPOTIFY, Platform.APPLE, Platform.DEEZER, Platform.YOUTUBE)
STOREFRONTS = ("us", "gb", "de", "fr", "jp")
_MERGED = re.compile(r"/recording/[0-9a-f-]{36}")
_LUCENE = re.compile(r'([+\-!(){}\[\]^"~*?:\\/]|&&|\|\|)')


class Named(Wire):
    """Anything with a name."""

    name: str = ""


class ArtistCredit(Wire):
    """One artist of a credit, and what joins it to the next."""

    name: str = ""
    joinphrase: str | None = ""
    artist: Named | None = None


class Release(Wire):
    """An album, single or compilation a recording is on."""

    title: str = ""
    status: str | None = None
    date: str | None = None


class Genre(Wire):
    """A genre and its votes."""

    name: str
    count: int | None = 0


class Url(Wire):
    """A web address."""

    resource: str


class RelatedRecording(Wire):
    """The recording that an address belongs to."""

    id: str


class Relation(Wire):
    """A link from a recording to an address, or back."""

    url: Url | None = None
    recording: RelatedRecording | None = None
    ended: bool | None = False


class Recording(Wire):
    """A recording as returned by look-ups, searches and dumps."""

    id: str
    title: str = ""
    length: float | None = None
    first_release_date: str | None = Field(None, alias="first-release-date")
    isrcs: tuple[str, ...] = ()
    artist_credit: tuple[ArtistCredit, ...] = Field((), alias="artist-credit")
    releases: tuple[Release, ...] = ()
    relations: tuple[Relation, ...] = ()
    genres: tuple[Genre, ...] = ()


class IsrcAnswer(Wire):
    """All recordings of an ISRC."""

    recordings: tuple[Recording, ...] = ()


class UrlEntity(Wire):
    """The recordings linked to an address."""

    relations: tuple[Relation, ...] = ()


class UrlAnswer(UrlEntity):
    """One address, or several under ``urls``."""

    urls: tuple[UrlEntity, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """Where MusicBrainz redirects to: the recording that another one has been merged into."""

    path: str


class SearchAnswer(Wire):
    """A page of search results."""

    recordings: tuple[Recording, ...] = ()


def identities_of(recording: Recording) -> list[TrackIdentity]:
    """Return an identity, and another for each further ISRC or address on the same platform."""
    values: dict[Platform, list[str]] = {Platform.ISRC: []}
    for code in recording.isrcs:
        isrc = known_id(Platform.ISRC, code)
        if isrc is not None:
            values[Platform.ISRC].append(isrc)
    for linked in _linked_ids(recording.relations):
        values.setdefault(linked.platform, []).append(linked.value)
    names = [ID_FIELDS[platform] for platform in values]
    rows = list(zip_longest(*(dict.fromkeys(found) for found in values.values()))) or [()]
    return [_identity(recording, dict(zip(names, row, strict=False))) for row in rows]


def _identity(recording: Recording, ids: dict[str, str | None]) -> TrackIdentity:
    genres = sorted(recording.genres, key=lambda genre: -(genre.count or 0))
    return TrackIdentity(
        artist="".join(
            (credit.name or (credit.artist.name if credit.artist else ""))
            + (credit.joinphrase or "")
            for credit in recording.artist_credit
        ),
        title=recording.title,
        mbid=known_id(Platform.MBID, recording.id),
        isrc=ids.get("isrc"),
        spotify_id=ids.get("spotify_id"),
        apple_id=ids.get("apple_id"),
        deezer_id=ids.get("deezer_id"),
        youtube_id=ids.get("youtube_id"),
        album=_album(recording.releases),
        year=year_of(recording.first_release_date),
        genres=tuple(genre.name for genre in genres),
        duration_s=seconds(recording.length),
        source=NAME,
    )


def _linked_ids(relations: Iterable[Relation]) -> Iterable[TrackId]:
    for relation in relations:
        if relation.url is None or relation.ended:
            continue
        try:
            track_id = parse_track_id(relation.url.resource)
        except InvalidTrackIdError:
            continue
        if isinstance(track_id, TrackId) and track_id.platform in LINKED:
            yield track_id


def _album(releases: Iterable[Release]) -> str | None:
    """Return the title of the earliest official release, else of the earliest."""
    ranked_releases = sorted(releases, key=lambda r: (r.status != "Official", r.date or "9999"))
    return ranked_releases[0].title if ranked_releases else None


def addresses_of(track_id: TrackId) -> list[str]:
    """Return the addresses under which MusicBrainz may have stored a streaming track."""
    if track_id.platform is Platform.SPOTIFY:
        return [f"https://open.spotify.com/track/{track_id.value}"]
    if track_id.platform is Platform.DEEZER:
        return [f"https://www.deezer.com/track/{track_id.value}"]
    if track_id.platform is Platform.YOUTUBE:
        return [f"https://www.youtube.com/watch?v={track_id.value}"]
    countries = dict.fromkeys([track_id.country or STOREFRONTS[0], *STOREFRONTS])
    return [f"https://music.apple.com/{country}/song/{track_id.value}" for country in countries]


class MusicBrainz:
    """Looks up recordings; the hub between ISRCs and streaming addresses."""

    name = NAME
    platforms = (Platform.MBID, Platform.ISRC, *LINKED)
    can_search = True
    terms = ProviderTerms(
        "contact, an address for its User-Agent", "Core data is CC0; one request per second."
    )

    def __init__(self, base_url: str, contact: str, version: str, limiter: RateLimiter) -> None:
        self.client = ProviderClient(
            NAME,
            base_url,
            limit=LIMIT,
            limiter=limiter,
            headers={"User-Agent": f"afa/{version} ( {contact} )"},
        )

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """See `IdentityProvider`."""
        if track_id.platform is Platform.MBID:
            return await self._by_mbid(track_id.value)
        if track_id.platform is Platform.ISRC:
            return await self._isrc(track_id.value)
        if track_id.platform in LINKED:
            return await self._address(track_id)
        return None

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """See `IdentityProvider`."""
        words = _escape(search_words(title)), _escape(search_words(artist))
        query = f'recording:"{words[0]}" AND artist:"{words[1]}"'
        answer = await self._get(
            SearchAnswer, "/recording", {"query": query, "limit": 10, "offset": 0}
        )
        found = [identities_of(recording)[0] for recording in answer.recordings] if answer else []
        return ranked(found, artist, title, duration_s)

    async def recording(self, model: type[W], mbid: str, parts: str) -> W | None:
        """Return these parts of a recording, or of the one that it has been merged into.

        Raises:
            ProviderError: MusicBrainz could not answer.
        """
        return await self._get(model, "/recording/{mbid}", {"inc": parts}, f"/recording/{mbid}")

    async def _by_mbid(self, mbid: str) -> TrackIdentity | None:
        recording = await self.recording(Recording, mbid, RECORDING_PARTS)
        return identities_of(recording)[0] if recording else None

    async def _isrc(self, isrc: str) -> TrackIdentity | None:
        answer = await self._get(
            IsrcAnswer, "/isrc/{isrc}", {"inc": "artists url-rels releases"}, f"/isrc/{isrc}"
        )
        if answer is None or not answer.recordings:
            return None
        earliest = min(answer.recordings, key=lambda r: r.first_release_date or "9999")
        return identities_of(earliest.model_copy(update={"isrcs": (isrc,)}))[0]

    async def _address(self, track_id: TrackId) -> TrackIdentity | None:
        params: Params = {"resource": addresses_of(track_id), "inc": "recording-rels"}
        answer = await self._get(UrlAnswer, "/url", params)
        if answer is None:
            return None
        for entity in (answer, *answer.urls):
            for relation in entity.relations:
                if relation.recording is not None:
                    return await self._by_mbid(relation.recording.id)
        return None

    async def _get(
        self, model: type[W], route: str, params: Params, path: str | None = None
    ) -> W | None:
        def judge(reply: Reply) -> W | Merged | None:
            if reply.status == 404 and reply.json():
                return None
            if reply.status == 503:
                wait_s = retry_after(reply.headers)
                raise ProviderBusyError(NAME, "we ask more than once per second", wait_s)
            if merged := _MERGED.search(reply.headers.get("location", "")):
                return Merged(merged[0])
            reply.check_status()
            return parse(model, reply)

        params = {**params, "fmt": "json"}
        answer = await self.client.read(route, judge, path=path, params=params)
        if isinstance(answer, Merged):
            answer = await self.client.read(route, judge, path=answer.path, params=params)
        if isinstance(answer, Merged):
            raise ProviderUnavailableError(NAME, "a merged recording leads to another merged one")
        return answer


def _escape(text: str) -> str:
    return _LUCENE.sub(r"\\\1", text)
