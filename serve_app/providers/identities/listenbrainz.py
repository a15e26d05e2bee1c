"""ListenBrainz: what a MusicBrainz recording is, and which one an artist and title mean.

A search needs the token of an account. Without one it would be refused, so only ids are looked up.

References:
    ListenBrainz API, https://listenbrainz.readthedocs.io/en/latest/users/api/metadata.html.
    MetaBrainz blog, 11 December 2025: searches need a token.
"""

from pydantic import RootModel

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import Match, ProviderTerms, RateLimit, RateLimiter
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.library.spelling import ranked
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, parse, seconds

NAME = "listenbrainz"
LIMIT = RateLimit(30, 10.0)
"""The limit is unpublished; answers have X-RateLimit headers, and 429 stops us."""


class ReleaseEntry(Wire):
    """The album."""

    name: str | None = None
    year: int | None = None


class RecordingEntry(Wire):
    """The recording; its length is in milliseconds."""

    name: str | None = None
    length: float | None = None


class ArtistEntry(Wire):
    """The whole artist credit."""

    name: str | None = None


class TagEntry(Wire):
    """A tag; those with ``genre_mbid`` are genres."""

    tag: str
    count: int | None = 0
    genre_mbid: str | None = None


class Tags(Wire):
    """Tags of the recording."""

    recording: tuple[TagEntry, ...] = ()


class Metadata(Wire):
    """What is known about a recording."""

    recording: RecordingEntry = RecordingEntry()
    artist: ArtistEntry = ArtistEntry()
    release: ReleaseEntry | None = None
    tag: Tags | None = None


class Lookup(Wire):
    """The mapper's answer; empty if it knows no recording."""

    artist_credit_name: str | None = None
    recording_name: str | None = None
    recording_mbid: str | None = None
    release_name: str | None = None
    metadata: Metadata | None = None


class ByMbid(RootModel[dict[str, Metadata]]):
    """Metadata of the known recordings, by MBID."""


class ListenBrainz:
    """Maps names to MBIDs without MusicBrainz's limit of one call per second."""

    name = NAME
    platforms = (Platform.MBID,)
    terms = ProviderTerms(
        "contact, an address for its User-Agent; searches also need listenbrainz_token",
        "The data is CC0; the token of any account is enough.",
    )

    def __init__(
        self, base_url: str, contact: str, version: str, limiter: RateLimiter, token: str
    ) -> None:
        self.can_search = bool(token)
        headers = {"User-Agent": f"afa/{version} ( {contact} )"}
        self.client = ProviderClient(
            NAME,
            base_url,
            limit=LIMIT,
            limiter=limiter,
            headers=headers | {"Authorization": f"Token {token}"} if token else headers,
        )

    async def by_id(self, track_id: TrackId) -> TrackIdentity | None:
        """See `IdentityProvider`."""
        if track_id.platform is not Platform.MBID:
            return None

        def judge(reply: Reply) -> TrackIdentity | None:
            reply.check_status()
            entry = parse(ByMbid, reply).root.get(track_id.value)
            return None if entry is None else _identity(track_id.value, entry)

        return await self.client.read(
            "/1/metadata/recording/",
            judge,
            params={"recording_mbids": track_id.value, "inc": "artist tag release"},
        )

    async def search(self, artist: str, title: str, duration_s: float | None = None) -> list[Match]:
        """See `IdentityProvider`."""

        def judge(reply: Reply) -> TrackIdentity | None:
            reply.check_status()
            answer = parse(Lookup, reply)
            mbid = known_id(Platform.MBID, answer.recording_mbid)
            if mbid is None:
                return None
            names = Metadata(
                recording=RecordingEntry(name=answer.recording_name),
                artist=ArtistEntry(name=answer.artist_credit_name),
                release=ReleaseEntry(name=answer.release_name),
            )
            known = _identity(mbid, answer.metadata or names)
            return known.filled_from(_identity(mbid, names))

        found = await self.client.read(
            "/1/metadata/lookup/",
            judge,
            params={
                "artist_name": artist,
                "recording_name": title,
                "metadata": "true",
                "inc": "artist tag release",
            },
        )
        return ranked([found] if found else [], artist, title, duration_s)


def _identity(mbid: str, metadata: Metadata) -> TrackIdentity:
    tags = metadata.tag.recording if metadata.tag else ()
    genres = sorted((tag for tag in tags if tag.genre_mbid), key=lambda tag: -(tag.count or 0))
    release = metadata.release or ReleaseEntry()
    return TrackIdentity(
        artist=metadata.artist.name or "",
        title=metadata.recording.name or "",
        mbid=mbid,
        album=release.name,
        year=release.year,
        genres=tuple(tag.tag for tag in genres),
        duration_s=seconds(metadata.recording.length),
        source=NAME,
    )
