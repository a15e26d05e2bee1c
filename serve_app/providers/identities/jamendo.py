"""Jamendo: whole tracks under Creative Commons licences, found by artist and title.

Errors arrive inside a 200 answer. Tracks whose licence forbids derivatives or commercial use are
left out unless the operator, who knows what they are used for, allows them.

References:
    https://developer.jamendo.com/v3.0/tracks.
"""

import re

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    AudioLocation,
    ProviderBusyError,
    ProviderRefusedError,
    ProviderTerms,
    ProviderUnavailableError,
    RateLimit,
    RateLimiter,
)
from serve_app.library.spelling import ranked, search_words
from serve_app.providers.web.http_client import Params, ProviderClient, Reply
from serve_app.providers.web.wire import Wire, parse

NAME = "jamendo"
LIMIT = RateLimit(20, 10.0)
CODE_BAD_CLIENT, CODE_RATE_LIMIT = 5, 6
_RESTRICTED = re.compile(r"/by(?:-[a-z]+)*-(?:nc|nd)(?:-|/)|/nc-|/nd/")


class Headers(Wire):
    """Whether the call succeeded."""

    status: str = ""
    code: int = 0


class Track(Wire):
    """A track and where its audio is."""

    name: str = ""
    duration: float | None = None
    artist_name: str = ""
    license_ccurl: str | None = None
    audiodownload: str | None = None
    audiodownload_allowed: bool = False


class Page(Wire):
    """An answer."""

    headers: Headers = Headers()
    results: tuple[Track, ...] = ()


class JamendoAudio:
    """Freely licensed audio of a track, if Jamendo has that exact track."""

    name = NAME
    terms = ProviderTerms(
        "jamendo_client_id",
        "Creative Commons audio; tracks that forbid derivatives or commercial use only on request.",
    )

    def __init__(
        self, base_url: str, client_id: str, allow_restricted: bool, limiter: RateLimiter
    ) -> None:
        self.client = ProviderClient(NAME, base_url, limit=LIMIT, limiter=limiter)
        self._client_id = client_id
        self._allow_restricted = allow_restricted

    async def locate(self, identity: TrackIdentity) -> AudioLocation | None:
        """See `AudioSource`."""
        if not identity.artist or not identity.title:
            return None
        params: Params = {
            "client_id": self._client_id,
            "format": "json",
            "limit": 10,
            "namesearch": search_words(identity.title),
            "artist_name": search_words(identity.artist),
            "audioformat": "mp32",
            "include": "licenses",
        }
        page = await self.client.read("/tracks/", _judge, params=params)
        offered = {
            TrackIdentity(
                artist=track.artist_name, title=track.name, duration_s=track.duration or None
            ): track
            for track in page.results
            if self._is_allowed(track)
        }
        matches = ranked(offered, identity.artist, identity.title, identity.duration_s)
        if not matches:
            return None
        track = offered[matches[0].identity]
        return AudioLocation(track.audiodownload or "", NAME, licence=track.license_ccurl)

    def _is_allowed(self, track: Track) -> bool:
        if not (track.audiodownload_allowed and track.audiodownload):
            return False
        licence = track.license_ccurl or ""
        return self._allow_restricted or bool(licence and not _RESTRICTED.search(licence))


def _judge(reply: Reply) -> Page:
    reply.check_status()
    page = parse(Page, reply)
    if page.headers.status == "success":
        return page
    if page.headers.code == CODE_BAD_CLIENT:
        raise ProviderRefusedError(NAME, "the client id is wrong")
    if page.headers.code == CODE_RATE_LIMIT:
        raise ProviderBusyError(NAME, "rate limit (code 6)")
    raise ProviderUnavailableError(NAME, f"error code {page.headers.code}")
