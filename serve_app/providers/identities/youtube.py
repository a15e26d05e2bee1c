"""YouTube oEmbed: the title and channel of a video. Its audio is never fetched.

References:
    https://oembed.com; an author ending in " - Topic" is an automatic art-track channel, whose name
    is the artist and whose video titles are track titles.
"""

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import Match, ProviderTerms, RateLimit, RateLimiter
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import Wire, parse

NAME = "youtube"
LIMIT = RateLimit(20, 10.0)
TOPIC = " - Topic"
DASHES = (" - ", " \u2013 ", " \u2014 ")


class OEmbed(Wire):
    """A video's title and channel."""

    title: str = ""
    author_name: str = ""


def identity_of(video_id: str, video: OEmbed) -> TrackIdentity:
    """Return a video's identity: exact for art tracks, else read from "Artist - Title"."""
    if video.author_name.endswith(TOPIC):
        artist, title = video.author_name.removesuffix(TOPIC), video.title
    else:
        for dash in DASHES:
            artist, found, title = video.title.partition(dash)
            if found:
                break
        else:
            artist, title = video.author_name, video.title
    return TrackIdentity(
        artist=artist.strip(), title=title.strip(), youtube_id=video_id, source=NAME
    )


class YouTube:
    """Turns a video id into a name to search for."""

    name = NAME
    platforms = (Platform.YOUTUBE,)
    can_search = False
    terms = ProviderTerms("youtube_enabled", "Titles by oEmbed only; no audio, no key needed.")

    def __init__(self, oembed_url: str, limiter: RateLimiter) -> None:
        self.client = ProviderClient(NAME, oembed_url, limit=LIMIT, limiter=limiter)

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """See `IdentityProvider`. A private video, or one that may not be embedded, has no name."""
        if track_id.platform is not Platform.YOUTUBE:
            return None

        def judge(reply: Reply) -> TrackIdentity | None:
            if reply.status in (400, 401, 403, 404):
                return None
            reply.check_status()
            return identity_of(track_id.value, parse(OEmbed, reply))

        address = f"https://www.youtube.com/watch?v={track_id.value}"
        return await self.client.read(
            "oembed", judge, path="", params={"url": address, "format": "json"}
        )

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """Find nothing: oEmbed cannot search."""
        del artist, title, duration_s
        return []
