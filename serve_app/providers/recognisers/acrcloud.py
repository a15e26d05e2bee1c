"""ACRCloud: recognises excerpts; requests are signed, and every call is billed.

The status is 200 for nearly everything: the code in the body counts. A call is sent once.

References:
    https://docs.acrcloud.com/reference/identification-api.
"""

import base64
import hashlib
import hmac
import time
from typing import Annotated, TypeVar

from pydantic import BeforeValidator

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import Recognition, SpendCap
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderRefusedError,
    ProviderTerms,
    ProviderUnavailableError,
    RateLimit,
    RateLimiter,
)
from serve_app.domain.track_ids import Platform
from serve_app.providers.recognisers.calls import CappedLimiter, within
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, seconds, shape, year_of

NAME = "acrcloud"
LIMIT = RateLimit(5, 1.0)
"""A plan's usual queries per second; code 3015 means that a plan has less."""
TIMEOUT_S = 5.0
PATH = "/v1/identify"
DATA_TYPE = "audio"
SIGNATURE_VERSION = "1"

CODE_MATCH, CODE_NO_MATCH = 0, 1001
UNUSABLE_CLIPS = frozenset({2000, 2002, 2004, 2006})
"""Silent, too short, or not decodable there: nothing to recognise, but not a service failure."""
REFUSALS = frozenset({3001, 3003, 3014})
"""Wrong key or signature, or the quota is used up."""
CODE_TOO_FAST = 3015
BACK_OFF_S = 15.0
"""How long to pause after too many queries per second; the answer does not say."""

T = TypeVar("T")


def _as_list(value: object) -> object:
    """Return one object, or a list of them, as a list."""
    return value if isinstance(value, list | tuple) else (value,)


OneOrMany = Annotated[tuple[T, ...], BeforeValidator(_as_list)]


class Status(Wire):
    """The outcome of the call."""

    code: int


class Named(Wire):
    """Anything with a name."""

    name: str = ""


class LinkedTrack(Wire):
    """A track on a platform."""

    id: str | int | None = None


class Linked(Wire):
    """What a platform knows about the track."""

    track: LinkedTrack | None = None
    vid: str | None = None


class ExternalIds(Wire):
    """Industry identifiers: text here, lists in broadcast results."""

    isrc: OneOrMany[str] = ()


class ExternalMetadata(Wire):
    """The track on other platforms."""

    spotify: OneOrMany[Linked] = ()
    deezer: OneOrMany[Linked] = ()
    applemusic: OneOrMany[Linked] = ()
    youtube: OneOrMany[Linked] = ()
    musicbrainz: OneOrMany[Linked] = ()


class Music(Wire):
    """A recognised track."""

    title: str = ""
    artists: tuple[Named, ...] = ()
    album: Named | None = None
    label: str | None = None
    release_date: str | None = None
    duration_ms: float | None = None
    score: float = 0
    genres: OneOrMany[Named] = ()
    external_ids: ExternalIds = ExternalIds()
    external_metadata: ExternalMetadata = ExternalMetadata()


class Metadata(Wire):
    """All that was recognised, best first."""

    music: OneOrMany[Music] = ()


class Answer(Wire):
    """Any answer."""

    status: Status
    metadata: Metadata = Metadata()


class AcrCloud:
    """Recognises excerpts of up to 12 s."""

    name = NAME
    timeout_s = TIMEOUT_S
    terms = ProviderTerms("acrcloud_key, acrcloud_secret", "Paid by contract.")

    def __init__(
        self,
        base_url: str,
        access_key: str,
        access_secret: str,
        limiter: RateLimiter,
        cap: SpendCap,
    ) -> None:
        self._key = access_key
        self._secret = access_secret
        self.client = ProviderClient(
            NAME,
            base_url,
            limit=LIMIT,
            limiter=CappedLimiter(limiter, cap),
            read_timeout_s=TIMEOUT_S,
            max_wait_s=1.0,
        )

    def accepts(self, clip: Clip) -> bool:
        """See `Recogniser`: accepts any audio."""
        return bool(clip.excerpt_wav)

    async def recognise(self, clip: Clip) -> Recognition | None:
        """See `Recogniser`."""
        timestamp = str(int(time.time()))
        form = {
            "access_key": self._key,
            "sample_bytes": str(len(clip.excerpt_wav)),
            "data_type": DATA_TYPE,
            "signature_version": SIGNATURE_VERSION,
            "timestamp": timestamp,
            "signature": signature(self._key, self._secret, timestamp),
        }
        files = {"sample": ("clip.wav", clip.excerpt_wav, "audio/wav")}
        request = self.client.build_post(PATH, data=form, files=files)
        music = await within(self.client, TIMEOUT_S, self.client.send_once(PATH, _judge, request))
        return None if music is None else recognition_of(music)


def signature(access_key: str, access_secret: str, timestamp: str) -> str:
    """Sign a request, as the ACRCloud documentation says."""
    text = "\n".join(("POST", PATH, access_key, DATA_TYPE, SIGNATURE_VERSION, timestamp))
    digest = hmac.new(access_secret.encode(), text.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def recognition_of(music: Music) -> Recognition:
    """Return a recognised track in our own form."""
    links = music.external_metadata
    isrcs = (known_id(Platform.ISRC, isrc) for isrc in music.external_ids.isrc)
    identity = TrackIdentity(
        artist=", ".join(artist.name for artist in music.artists if artist.name),
        title=music.title,
        mbid=_linked(Platform.MBID, links.musicbrainz),
        isrc=next(filter(None, isrcs), None),
        spotify_id=_linked(Platform.SPOTIFY, links.spotify),
        apple_id=_linked(Platform.APPLE, links.applemusic),
        deezer_id=_linked(Platform.DEEZER, links.deezer),
        youtube_id=next(
            filter(None, (known_id(Platform.YOUTUBE, one.vid) for one in links.youtube)), None
        ),
        album=music.album.name or None if music.album else None,
        year=year_of(music.release_date),
        label=music.label or None,
        genres=tuple(genre.name for genre in music.genres if genre.name),
        duration_s=seconds(music.duration_ms),
        source=NAME,
    )
    return Recognition(identity, round(min(max(music.score, 0), 100)))


def _linked(platform: Platform, links: tuple[Linked, ...]) -> str | None:
    found = (known_id(platform, one.track.id) for one in links if one.track is not None)
    return next(filter(None, found), None)


def _judge(reply: Reply) -> Music | None:
    try:
        answer = shape(Answer, reply.json(), NAME)
    except ProviderUnavailableError:
        reply.check_status()
        raise
    code = answer.status.code
    if code == CODE_MATCH:
        return next((music for music in answer.metadata.music if music.title), None)
    if code == CODE_NO_MATCH or code in UNUSABLE_CLIPS:
        return None
    if code in REFUSALS:
        raise ProviderRefusedError(NAME, f"error code {code}")
    if code == CODE_TOO_FAST:
        raise ProviderBusyError(NAME, f"error code {code}", BACK_OFF_S)
    raise ProviderUnavailableError(NAME, f"error code {code}")
