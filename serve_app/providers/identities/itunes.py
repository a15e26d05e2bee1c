"""iTunes Search and Lookup: Apple ids to names, and names to Apple ids. It knows no ISRCs.

Over its limit it answers 403 with an empty body, which means "later" and never "no such track".
Its terms allow promotional use next to a store link only, and previews may not be downloaded, so
this module never reads a preview's address.

References:
    https://developer.apple.com/library/archive/documentation/AudioVideo/Conceptual/iTuneSearchAPI/.
"""

from collections.abc import Iterable

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    Match,
    ProviderBusyError,
    ProviderTerms,
    RateLimit,
    RateLimiter,
)
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.library.spelling import ranked, search_words
from serve_app.providers.web.http_client import Params, ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, parse, seconds, year_of

NAME = "itunes"
LIMIT = RateLimit(18, 60.0)
"""Apple says about 20 a minute, subject to change."""

DEFAULT_COUNTRY = "us"
NO_GENRE = "Music"


class Result(Wire):
    """One result; only songs are used."""

    wrapperType: str = ""  # noqa: N815  # the wire's name
    kind: str | None = None
    trackId: int | None = None  # noqa: N815
    artistName: str | None = None  # noqa: N815
    trackName: str | None = None  # noqa: N815
    collectionName: str | None = None  # noqa: N815
    artworkUrl100: str | None = None  # noqa: N815
    releaseDate: str | None = None  # noqa: N815
    trackTimeMillis: float | None = None  # noqa: N815
    primaryGenreName: str | None = None  # noqa: N815


class Page(Wire):
    """All results."""

    results: tuple[Result, ...] = ()


def identity_of(result: Result) -> TrackIdentity | None:
    """Return a song's identity; None for albums, videos and books."""
    if result.wrapperType != "track" or result.kind not in (None, "song"):
        return None
    genre = result.primaryGenreName
    return TrackIdentity(
        artist=result.artistName or "",
        title=result.trackName or "",
        apple_id=known_id(Platform.APPLE, result.trackId),
        album=result.collectionName,
        year=year_of(result.releaseDate),
        genres=(genre,) if genre and genre != NO_GENRE else (),
        duration_s=seconds(result.trackTimeMillis),
        artwork_url=(result.artworkUrl100 or "").replace("100x100bb", "600x600bb") or None,
        source=NAME,
    )


class ITunes:
    """Looks up Apple ids."""

    name = NAME
    platforms = (Platform.APPLE,)
    can_search = True
    terms = ProviderTerms(
        "itunes_enabled", "Promotional use beside a store link only; previews stay untouched."
    )

    def __init__(self, base_url: str, limiter: RateLimiter) -> None:
        self.client = ProviderClient(NAME, base_url, limit=LIMIT, limiter=limiter)

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """See `IdentityProvider`."""
        if track_id.platform is not Platform.APPLE:
            return None
        country = track_id.country or DEFAULT_COUNTRY
        found = await self._songs("/lookup", {"id": track_id.value, "country": country.upper()})
        return next((song for song in found if song.apple_id == track_id.value), None)

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """See `IdentityProvider`."""
        params: Params = {
            "term": f"{search_words(artist)} {search_words(title)}",
            "country": DEFAULT_COUNTRY.upper(),
            "media": "music",
            "entity": "song",
            "limit": 25,
        }
        return ranked(await self._songs("/search", params), artist, title, duration_s)

    async def _songs(self, route: str, params: Params) -> list[TrackIdentity]:
        return _songs_of((await self.client.read(route, _judge, params=params)).results)


def _songs_of(results: Iterable[Result]) -> list[TrackIdentity]:
    songs = (identity_of(result) for result in results)
    return [song for song in songs if song is not None]


def _judge(reply: Reply) -> Page:
    if reply.status == 403:
        raise ProviderBusyError(NAME, "status 403, its way to say: too often", 60.0)
    if reply.status == 400:
        return Page()  # a country without a store
    reply.check_status()
    return parse(Page, reply)
