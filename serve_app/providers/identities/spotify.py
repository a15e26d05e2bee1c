"""Spotify's Web API, for resolving identifiers only: its policy forbids analysing its content.

Opt-in: it needs the operator's own application credentials. Every field is read as optional, since
the API has been losing fields.

References:
    https://developer.spotify.com/documentation/web-api; February 2026 migration guide.
"""

import asyncio
import base64
import time
from collections.abc import Callable
from typing import TypeVar

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    Match,
    ProviderRefusedError,
    ProviderTerms,
    RateLimit,
    RateLimiter,
)
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.library.spelling import ranked, search_words
from serve_app.providers.web.http_client import Params, ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, parse, seconds, year_of

T = TypeVar("T")
NAME = "spotify"
LIMIT = RateLimit(60, 30.0)
"""The limit is unpublished, over a rolling 30 s; 429 says how long to wait."""

SEARCH_LIMIT = 5
NO_SUCH_TRACK = (400, 404)
"""400: 22 letters and digits that are no Spotify id."""
TOKEN_SLACK_S = 60.0


class Token(Wire):
    """An access token."""

    access_token: str
    expires_in: float = 3600.0


class Artist(Wire):
    """An artist."""

    name: str = ""


class Image(Wire):
    """A cover."""

    url: str = ""
    width: int | None = None


class Album(Wire):
    """An album."""

    name: str | None = None
    release_date: str | None = None
    images: tuple[Image, ...] = ()


class ExternalIds(Wire):
    """Identifiers of other systems."""

    isrc: str | None = None


class Track(Wire):
    """A track."""

    id: str | None = None
    name: str = ""
    artists: tuple[Artist, ...] = ()
    album: Album | None = None
    duration_ms: float | None = None
    external_ids: ExternalIds | None = None


class Page(Wire):
    """A page of tracks."""

    items: tuple[Track, ...] = ()


class SearchAnswer(Wire):
    """The answer to a search for tracks."""

    tracks: Page = Page()


def identity_of(track: Track) -> TrackIdentity:
    """Return a track's identity."""
    album = track.album or Album()
    largest = max(album.images, key=lambda image: image.width or 0, default=Image())
    return TrackIdentity(
        artist=", ".join(artist.name for artist in track.artists),
        title=track.name,
        isrc=known_id(Platform.ISRC, track.external_ids.isrc if track.external_ids else None),
        spotify_id=known_id(Platform.SPOTIFY, track.id),
        album=album.name,
        year=year_of(album.release_date),
        duration_s=seconds(track.duration_ms),
        artwork_url=largest.url or None,
        source=NAME,
    )


class Spotify:
    """Turns ISRCs and Spotify ids into each other."""

    name = NAME
    platforms = (Platform.SPOTIFY, Platform.ISRC)
    can_search = True
    terms = ProviderTerms(
        "spotify_client_id, spotify_client_secret",
        "Identifiers only: no analysis of its content, no stand-alone metadata product.",
    )

    def __init__(
        self,
        base_url: str,
        token_url: str,
        client_id: str,
        client_secret: str,
        limiter: RateLimiter,
    ) -> None:
        self.client = ProviderClient(NAME, base_url, limit=LIMIT, limiter=limiter)
        pair = f"{client_id}:{client_secret}".encode()
        self._authorization = f"Basic {base64.b64encode(pair).decode()}"
        self._token_url = token_url
        self._token = ""
        self._token_ends = 0.0
        self._asking = asyncio.Lock()

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """See `IdentityProvider`."""
        if track_id.platform is Platform.SPOTIFY:
            track = await self._get(_track_or_none, "/tracks/{id}", f"/tracks/{track_id.value}", {})
            return identity_of(track) if track else None
        if track_id.platform is Platform.ISRC:
            found = await self._search(f"isrc:{track_id.value}")
            return next((one for one in found if one.isrc in (None, track_id.value)), None)
        return None

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """See `IdentityProvider`."""
        words = search_words(title).replace('"', " "), search_words(artist).replace('"', " ")
        found = await self._search(f'track:"{words[0]}" artist:"{words[1]}"')
        return ranked(found, artist, title, duration_s)

    async def _search(self, query: str) -> list[TrackIdentity]:
        params: Params = {"q": query, "type": "track", "limit": SEARCH_LIMIT}
        answer = await self._get(_search_answer, "/search", "/search", params)
        return [identity_of(track) for track in answer.tracks.items]

    async def _get(self, judge: Callable[[Reply], T], route: str, path: str, params: Params) -> T:
        """Read with a token; if it was revoked early, replace it once."""
        token = await self._valid_token()
        reply = await self._read(route, path, params, token)
        if reply.status == 401:
            self._token_ends = 0.0
            reply = await self._read(route, path, params, await self._valid_token())
        if reply.status == 401:
            self.client.breaker.trip()
            raise ProviderRefusedError(NAME, "its own fresh token was refused")
        return judge(reply)

    async def _read(self, route: str, path: str, params: Params, token: str) -> Reply:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.client.read(
            route, _pass_expired, path=path, params=params, headers=headers
        )

    async def _valid_token(self) -> str:
        """Return the access token, renewed shortly before it expires, in one request at a time."""
        async with self._asking:
            if time.monotonic() >= self._token_ends:
                request = self.client.build_post(
                    self._token_url,
                    data={"grant_type": "client_credentials"},
                    headers={"Authorization": self._authorization},
                )
                token = await self.client.send_once("token", _token, request)
                self._token = token.access_token
                self._token_ends = time.monotonic() + max(0.0, token.expires_in - TOKEN_SLACK_S)
            return self._token


def _pass_expired(reply: Reply) -> Reply:
    """Raise the error of a status, but let "no such track" and "token expired" through."""
    if reply.status not in (*NO_SUCH_TRACK, 401):
        reply.check_status()
    return reply


def _token(reply: Reply) -> Token:
    if reply.status in (400, 401, 403):
        raise ProviderRefusedError(NAME, "the client id or secret is wrong")
    reply.check_status()
    return parse(Token, reply)


def _track_or_none(reply: Reply) -> Track | None:
    return None if reply.status in NO_SUCH_TRACK else parse(Track, reply)


def _search_answer(reply: Reply) -> SearchAnswer:
    return SearchAnswer() if reply.status in NO_SUCH_TRACK else parse(SearchAnswer, reply)
