"""Shazam's app interface, reverse-engineered and unlicensed: off unless an operator insists.

About five requests a minute are accepted per address. The optional package
``shazamio-core`` makes the signature; without it this service is off.

References:
    shazamio (MIT), which documents the interface by its source.
"""

import importlib
import time
import uuid
from collections.abc import Awaitable, Callable

from pydantic import Field

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import Recognition
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderTerms, RateLimit, RateLimiter
from serve_app.domain.track_ids import Platform
from serve_app.providers.recognisers.calls import within
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, parse, year_of

NAME = "shazam"
LIMIT = RateLimit(5, 60.0)
TIMEOUT_S = 4.0
MOST_SKEW = 1e-3
"""Most wrong matches have a time or frequency skew beyond this."""
SKEW_PENALTY = 50
"""Confidence deducted at that skew; a match with a larger one is rejected."""
ROUTE = "/discovery/v5/{language}/{country}/iphone/-/tag/{uuid}/{uuid}"
QUERY = (
    "sync=true&webv3=true&sampling=true&connected=&shazamapiversion=v3&sharehub=true"
    "&hubv5minorversion=v5.1&hidelb=true&video=v3"
)
HEADERS = {
    "X-Shazam-Platform": "IPHONE",
    "X-Shazam-AppVersion": "14.1.0",
    "Accept": "*/*",
    "Accept-Language": "en-US",
}

Signer = Callable[[bytes], Awaitable[tuple[str, int]]]
"""Turns a WAV file into a signature's data address and its length in milliseconds."""


class Matched(Wire):
    """How well the recording fits."""

    timeskew: float = 0.0
    frequencyskew: float = 0.0


class Action(Wire):
    """Something the app can do with a track."""

    type: str = ""
    id: str | None = None


class Hub(Wire):
    """Where the track can be played."""

    actions: tuple[Action, ...] = ()


class Fact(Wire):
    """A titled line about the track."""

    title: str = ""
    text: str = ""


class Section(Wire):
    """A page about the track."""

    type: str = ""
    metadata: tuple[Fact, ...] = ()


class Images(Wire):
    """Pictures."""

    coverart: str | None = None
    coverarthq: str | None = None


class Genres(Wire):
    """Genres, by rank."""

    primary: str | None = None


class Track(Wire):
    """A recognised track."""

    title: str = ""
    subtitle: str = ""
    isrc: str | None = None
    hub: Hub = Hub()
    sections: tuple[Section, ...] = ()
    images: Images = Images()
    genres: Genres = Genres()


class Answer(Wire):
    """Any answer; without ``track`` nothing was recognised."""

    matches: tuple[Matched, ...] = Field(default=())
    track: Track | None = None


class Shazam:
    """Recognises excerpts of up to 12 s."""

    name = NAME
    timeout_s = TIMEOUT_S
    terms = ProviderTerms(
        "shazam_enabled, and the package shazamio-core",
        "Unofficial: the vendor licenses only its SDK; about five calls a minute.",
    )

    def __init__(self, base_url: str, signer: Signer, limiter: RateLimiter) -> None:
        self._signer = signer
        self.client = ProviderClient(
            NAME,
            base_url,
            limit=LIMIT,
            limiter=limiter,
            headers=HEADERS,
            read_timeout_s=TIMEOUT_S,
            max_wait_s=1.0,
        )

    def accepts(self, clip: Clip) -> bool:
        """See `Recogniser`: accepts any audio."""
        return bool(clip.excerpt_wav)

    async def recognise(self, clip: Clip) -> Recognition | None:
        """See `Recogniser`."""
        answer = await within(self.client, TIMEOUT_S, self._ask(clip.excerpt_wav))
        return recognition_of(answer)

    async def _ask(self, wav: bytes) -> Answer:
        address, length_ms = await self._signer(wav)
        tags = f"{str(uuid.uuid4()).upper()}/{str(uuid.uuid4()).upper()}"
        request = self.client.build_post(
            f"/discovery/v5/en-US/US/iphone/-/tag/{tags}?{QUERY}",
            json_body={
                "timezone": "Europe/London",
                "signature": {"uri": address, "samplems": length_ms},
                "timestamp": int(time.time() * 1000),
                "context": {},
                "geolocation": {},
            },
        )
        return await self.client.send_once(ROUTE, _judge, request)


def recognition_of(answer: Answer) -> Recognition | None:
    """Return a recognised track in our own form, or None if it fits too badly."""
    track = answer.track
    if track is None or not track.title:
        return None
    skew = 0.0
    if answer.matches:
        skew = max(abs(answer.matches[0].timeskew), abs(answer.matches[0].frequencyskew))
    if skew > MOST_SKEW:
        return None
    facts = {
        fact.title: fact.text
        for section in track.sections
        if section.type == "SONG"
        for fact in section.metadata
    }
    plays = (action.id for action in track.hub.actions if action.type == "applemusicplay")
    identity = TrackIdentity(
        artist=track.subtitle,
        title=track.title,
        isrc=known_id(Platform.ISRC, track.isrc),
        apple_id=known_id(Platform.APPLE, next(plays, None)),
        album=facts.get("Album") or None,
        year=year_of(facts.get("Released")),
        label=facts.get("Label") or None,
        genres=(track.genres.primary,) if track.genres.primary else (),
        artwork_url=track.images.coverarthq or track.images.coverart,
        source=NAME,
    )
    return Recognition(identity, round(100 - SKEW_PENALTY * skew / MOST_SKEW))


def installed_signer() -> Signer | None:
    """Return the signer of ``shazamio-core``; None if that package is not installed."""
    try:
        core = importlib.import_module("shazamio_core")
    except ImportError:
        return None
    recogniser = core.Recognizer()

    async def sign(wav: bytes) -> tuple[str, int]:
        made = await recogniser.recognize_bytes(wav)
        return str(made.signature.uri), int(made.signature.samples)

    return sign


def _judge(reply: Reply) -> Answer:
    reply.check_status()
    return parse(Answer, reply)
