"""Deezer's public API: tracks by id or ISRC and by name, and previews if the operator allows.

Errors arrive inside a 200 answer. Its terms exclude commercial use and grant no right to store
audio or derive data, so it is off unless the operator turns it on; signed preview addresses expire
and are never kept.

References:
    https://developers.deezer.com/api.
"""

from typing import TypeVar

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    AudioLocation,
    Match,
    ProviderBusyError,
    ProviderRefusedError,
    ProviderTerms,
    ProviderUnavailableError,
    RateLimit,
    RateLimiter,
)
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.library.spelling import ranked, search_words
from serve_app.providers.web.http_client import Params, ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, shape, year_of

NAME = "deezer"
LIMIT = RateLimit(45, 5.0)
"""Deezer allows 50 in 5 s; the rest is slack for clocks."""

CODE_QUOTA, CODE_BUSY, CODE_NOT_FOUND = 4, 700, 800
REFUSALS = frozenset({200, 300})
W = TypeVar("W", bound=Wire)


class Problem(Wire):
    """An error inside an answer."""

    code: int = 0


class Answer(Wire):
    """Any answer: an error, or the thing asked for."""

    error: Problem | None = None


class Artist(Wire):
    """An artist."""

    name: str = ""


class Album(Wire):
    """An album."""

    title: str | None = None
    cover_xl: str | None = None


class Track(Wire):
    """A track; items of a search lack most optional fields."""

    id: int
    title: str = ""
    isrc: str | None = None
    duration: float | None = None
    release_date: str | None = None
    preview: str | None = None
    artist: Artist = Artist()
    album: Album | None = None


class SearchPage(Wire):
    """A page of search results."""

    data: tuple[Track, ...] = ()


def identity_of(track: Track) -> TrackIdentity:
    """Return a track's identity, without tempo, which is often 0, and doubled for quiet tracks."""
    album = track.album or Album()
    return TrackIdentity(
        artist=track.artist.name,
        title=track.title,
        isrc=known_id(Platform.ISRC, track.isrc),
        deezer_id=known_id(Platform.DEEZER, track.id),
        album=album.title,
        year=year_of(track.release_date),
        duration_s=track.duration or None,
        artwork_url=album.cover_xl or None,
        source=NAME,
    )


class Deezer:
    """Turns ISRCs and Deezer ids into each other and into names."""

    name = NAME
    platforms = (Platform.DEEZER, Platform.ISRC)
    can_search = True
    terms = ProviderTerms(
        "deezer_enabled", "Non-commercial use only without an agreement; metadata, no storage."
    )

    def __init__(self, base_url: str, limiter: RateLimiter) -> None:
        self.client = ProviderClient(NAME, base_url, limit=LIMIT, limiter=limiter)

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """See `IdentityProvider`."""
        track = await self.track(track_id)
        return identity_of(track) if track else None

    async def track(self, track_id: TrackId) -> Track | None:
        """Return the track of a Deezer id or an ISRC, as Deezer describes it."""
        if track_id.platform is Platform.DEEZER:
            return await self._get(Track, "/track/{id}", f"/track/{track_id.value}")
        if track_id.platform is Platform.ISRC:
            return await self._get(Track, "/track/isrc:{isrc}", f"/track/isrc:{track_id.value}")
        return None

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """See `IdentityProvider`. The best match is completed, since a search returns no ISRC."""
        words = search_words(title).replace('"', " "), search_words(artist).replace('"', " ")
        params: Params = {
            "q": f'artist:"{words[1]}" track:"{words[0]}"',
            "strict": "on",
            "limit": 25,
            "index": 0,
        }
        page = await self._get(SearchPage, "/search", "/search", params)
        found = [identity_of(track) for track in page.data] if page else []
        matches = ranked(found, artist, title, duration_s)
        if not matches or matches[0].identity.deezer_id is None:
            return matches
        best = await self.by_id(TrackId(Platform.DEEZER, matches[0].identity.deezer_id))
        return [Match(best or matches[0].identity, matches[0].score), *matches[1:]]

    async def _get(
        self, model: type[W], route: str, path: str, params: Params | None = None
    ) -> W | None:
        def judge(reply: Reply) -> W | None:
            body = _body(reply)
            problem = shape(Answer, body, NAME).error
            if problem is None:
                reply.check_status()
                return shape(model, body, NAME)
            if problem.code == CODE_NOT_FOUND:
                return None
            if problem.code == CODE_QUOTA:
                raise ProviderBusyError(NAME, "quota exceeded (code 4)")
            if problem.code in REFUSALS:
                raise ProviderRefusedError(NAME, f"error code {problem.code}")
            raise ProviderUnavailableError(NAME, f"error code {problem.code}")

        return await self.client.read(route, judge, path=path, params=params)


def _body(reply: Reply) -> object:
    """Return the JSON body; a refusal by status (some networks are blocked) may have none."""
    try:
        return reply.json()
    except ProviderUnavailableError:
        reply.check_status()
        raise


class DeezerPreviews:
    """The 30 s preview of a track, for transient analysis only."""

    name = "deezer_preview"
    terms = ProviderTerms(
        "deezer_previews_enabled",
        "No document grants analysis of previews: only with an agreement; never stored. Lengths "
        "and sections are those of the preview.",
    )

    def __init__(self, deezer: Deezer) -> None:
        self._deezer = deezer

    async def locate(self, identity: TrackIdentity) -> AudioLocation | None:
        """See `AudioSource`. The address is requested each time, since it expires."""
        for platform in (Platform.DEEZER, Platform.ISRC):
            value = identity.id_of(platform)
            if value is None:
                continue
            track = await self._deezer.track(TrackId(platform, value))
            if track is not None and track.preview:
                return AudioLocation(track.preview, self.name, is_preview=True, is_transient=True)
        return None
