"""Cover Art Archive: the front cover of a MusicBrainz release, linked and never copied.

A cover's address redirects to the picture; the redirect itself proves that there is a front cover,
so it is not followed.

References:
    https://musicbrainz.org/doc/Cover_Art_Archive/API. Pictures remain their owners'.
"""

from serve_app.domain.identification import ReleaseIds
from serve_app.domain.providers import ProviderTerms, RateLimit, RateLimiter
from serve_app.domain.track_ids import Platform
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import known_id

NAME = "coverart"
LIMIT = RateLimit(10, 1.0)
"""No limit is published; this is ours."""
READ_TIMEOUT_S = 3.0
SIZE = "front-500"
FOUND = frozenset({200, 302, 303, 307, 308})
NONE = frozenset({400, 404})
"""A malformed id is answered like an unknown one."""


class CoverArtArchive:
    """Finds front covers."""

    name = NAME
    terms = ProviderTerms(
        "contact, an address for its User-Agent",
        "Link to pictures only; they remain their owners'.",
    )

    def __init__(self, base_url: str, contact: str, version: str, limiter: RateLimiter) -> None:
        self._base_url = base_url.rstrip("/")
        self.client = ProviderClient(
            NAME,
            base_url,
            limit=LIMIT,
            limiter=limiter,
            headers={"User-Agent": f"afa/{version} ( {contact} )"},
            read_timeout_s=READ_TIMEOUT_S,
        )

    async def front(self, release: ReleaseIds) -> str | None:
        """Return the address of the front cover, or None; the release's before its group's.

        Raises:
            ProviderError: The archive could not answer.
        """
        for kind, value in (("release", release.release_id), ("release-group", release.group_id)):
            mbid = known_id(Platform.MBID, value)
            if mbid is None:
                continue
            path = f"/{kind}/{mbid}/{SIZE}"
            if await self.client.read(f"/{kind}/{{mbid}}/{SIZE}", _judge, path=path):
                return self._base_url + path
        return None


def _judge(reply: Reply) -> bool:
    if reply.status in NONE:
        return False
    if reply.status in FOUND:
        return True
    reply.check_status()
    return False
