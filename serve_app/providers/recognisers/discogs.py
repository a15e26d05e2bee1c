"""Discogs: label, genres and styles of a track's release.

Its terms restrict images and marketplace data, and want nothing kept for long. So only plain
release facts are read, and a cache in front must not keep them beyond six hours.

References:
    https://www.discogs.com/developers.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator

from serve_app.domain.identification import ReleaseFacts
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderTerms,
    RateLimit,
    RateLimiter,
)
from serve_app.library.spelling import normalise, normalise_artist, search_words
from serve_app.providers.web.http_client import Params, ProviderClient, Reply
from serve_app.providers.web.wire import Wire, parse

NAME = "discogs"
LIMIT = RateLimit(55, 60.0)
"""Discogs allows 60 a minute; the rest is slack for clocks."""
_NUMBER_SUFFIX = re.compile(r"\s\([0-9]+\)$")


def _as_tuple(value: object) -> object:
    """Return a list; older bodies have plain text instead of one."""
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class Hit(Wire):
    """A release found by a search; its title is "Artist - Release"."""

    title: str = ""
    type: str | None = None
    genre: Words = ()
    style: Words = ()
    label: Words = ()


class Page(Wire):
    """A page of search results."""

    results: tuple[Hit, ...] = ()


class Discogs:
    """Finds the release that a track is on."""

    name = NAME
    terms = ProviderTerms(
        "discogs_token, contact", "Facts of releases are CC0; images are restricted and not used."
    )

    def __init__(
        self, base_url: str, token: str, contact: str, version: str, limiter: RateLimiter
    ) -> None:
        self.client = ProviderClient(
            NAME,
            base_url,
            limit=LIMIT,
            limiter=limiter,
            headers={
                "User-Agent": f"afa/{version} ( {contact} )",
                "Authorization": f"Discogs token={token}",
            },
        )

    async def facts(self, identity: TrackIdentity) -> ReleaseFacts | None:
        """Return what is known about the release that a track is on, or None.

        Raises:
            ProviderError: Discogs could not answer.
        """
        if not identity.artist or not identity.title:
            return None
        params: Params = {
            "artist": search_words(identity.artist),
            "track": search_words(identity.title),
            "type": "release",
            "per_page": 10,
            "page": 1,
        }
        page = await self.client.read("/database/search", _judge, params=params)
        hit = best_hit(page.results, identity)
        if hit is None:
            return None
        return ReleaseFacts(
            label=_NUMBER_SUFFIX.sub("", hit.label[0]) if hit.label else None,
            genres=hit.genre,
            styles=hit.style,
        )


def best_hit(hits: tuple[Hit, ...], identity: TrackIdentity) -> Hit | None:
    """Return the first release of that artist, preferably with the album's name; no compilation."""
    artist = normalise_artist(identity.artist)
    album = normalise(identity.album or "")
    own = []
    for hit in hits:
        name, _, title = hit.title.partition(" - ")
        if hit.type in (None, "release") and _is_artist(name, artist):
            own.append((hit, normalise(title)))
    for hit, title in own:
        if album and title == album:
            return hit
    return own[0][0] if own else None


def _is_artist(name: str, artist: str) -> bool:
    plain = normalise_artist(_NUMBER_SUFFIX.sub("", name.rstrip("*")))
    # Discogs may credit "A & B" or "A feat. B" where others name A alone, or the reverse.
    return plain == artist or f" {artist} " in f" {plain} " or f" {plain} " in f" {artist} "


def _judge(reply: Reply) -> Page:
    if reply.status == 404:
        return Page()
    reply.check_status()
    return parse(Page, reply)
