"""AudD: recognises excerpts; every call is billed.

The status is 200 for nearly everything: the body counts. A call is sent once and never repeated.

References:
    https://docs.audd.io.
"""

from pipelines.fingerprint.clip import Clip
from serve_app.domain.identification import Recognition, SpendCap
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
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

NAME = "audd"
LIMIT = RateLimit(10, 1.0)
"""AudD publishes no limit; this keeps one installation modest."""
TIMEOUT_S = 5.0
RETURN = "apple_music,spotify,deezer,musicbrainz"
REFUSALS = frozenset({19, 31337, 900, 901, 902, 903, 904, 905})
"""Blocked, wrong token, quota used up, or no subscription."""
UNUSABLE_CLIPS = frozenset({300, 500})
"""No fingerprint, or audio it cannot use: nothing to recognise, but not a service failure."""


class Problem(Wire):
    """An error inside an answer."""

    error_code: int = 0


class PlayParams(Wire):
    """How Apple Music plays a track."""

    id: str | int | None = None


class Artwork(Wire):
    """A picture's address, with ``{w}`` and ``{h}`` to fill in."""

    url: str | None = None


class AppleTrack(Wire):
    """The track on Apple Music; the names are Apple's."""

    isrc: str | None = None
    durationInMillis: float | None = None  # noqa: N815  # Apple's name
    playParams: PlayParams | None = None  # noqa: N815  # Apple's name
    genreNames: tuple[str, ...] = ()  # noqa: N815  # Apple's name
    artwork: Artwork | None = None


class ExternalIds(Wire):
    """Identifiers that Spotify returns."""

    isrc: str | None = None


class SpotifyTrack(Wire):
    """The track on Spotify."""

    id: str | None = None
    duration_ms: float | None = None
    external_ids: ExternalIds | None = None


class DeezerTrack(Wire):
    """The track on Deezer."""

    id: int | None = None
    duration: float | None = None


class BrainzRecording(Wire):
    """The recording on MusicBrainz."""

    id: str | None = None


class Track(Wire):
    """What was recognised; each platform's part may be missing."""

    artist: str = ""
    title: str = ""
    album: str | None = None
    release_date: str | None = None
    label: str | None = None
    isrc: str | None = None
    score: float | None = None
    apple_music: AppleTrack | None = None
    spotify: SpotifyTrack | None = None
    deezer: DeezerTrack | None = None
    musicbrainz: tuple[BrainzRecording, ...] = ()


class Answer(Wire):
    """Any answer."""

    status: str = ""
    result: Track | None = None
    error: Problem | None = None


class Audd:
    """Recognises excerpts of up to 12 s."""

    name = NAME
    timeout_s = TIMEOUT_S
    terms = ProviderTerms("audd_token", "Paid: about $5 per 1,000 calls.")

    def __init__(self, base_url: str, token: str, limiter: RateLimiter, cap: SpendCap) -> None:
        self._token = token
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
        request = self.client.build_post(
            "/",
            data={"api_token": self._token, "return": RETURN},
            files={"file": ("clip.wav", clip.excerpt_wav, "audio/wav")},
        )
        track = await within(self.client, TIMEOUT_S, self.client.send_once("/", _judge, request))
        return None if track is None else recognition_of(track)


def recognition_of(track: Track) -> Recognition:
    """Return a recognised track in our own form; AudD's ordinary plans return no score."""
    apple = track.apple_music or AppleTrack()
    spotify = track.spotify or SpotifyTrack()
    deezer = track.deezer or DeezerTrack()
    spotify_isrc = spotify.external_ids.isrc if spotify.external_ids else None
    isrcs = (known_id(Platform.ISRC, i) for i in (track.isrc, apple.isrc, spotify_isrc))
    brainz = track.musicbrainz[0].id if track.musicbrainz else None
    artwork = apple.artwork.url if apple.artwork else None
    identity = TrackIdentity(
        artist=track.artist,
        title=track.title,
        mbid=known_id(Platform.MBID, brainz),
        isrc=next(filter(None, isrcs), None),
        spotify_id=known_id(Platform.SPOTIFY, spotify.id),
        apple_id=known_id(Platform.APPLE, apple.playParams.id if apple.playParams else None),
        deezer_id=known_id(Platform.DEEZER, deezer.id),
        album=track.album or None,
        year=year_of(track.release_date),
        label=track.label or None,
        genres=tuple(genre for genre in apple.genreNames if genre != "Music"),
        duration_s=seconds(apple.durationInMillis or spotify.duration_ms)
        or deezer.duration
        or None,
        artwork_url=artwork.replace("{w}", "600").replace("{h}", "600") if artwork else None,
        source=NAME,
    )
    confidence = 100 if track.score is None else round(min(max(track.score, 0), 100))
    return Recognition(identity, confidence)


def _judge(reply: Reply) -> Track | None:
    try:
        answer = shape(Answer, reply.json(), NAME)
    except ProviderUnavailableError:
        reply.check_status()
        raise
    if answer.status == "success":
        return answer.result if answer.result and answer.result.title else None
    if answer.error is None:
        reply.check_status()
        raise ProviderUnavailableError(NAME, "an answer without a status")
    code = answer.error.error_code
    if code in UNUSABLE_CLIPS:
        return None
    if code in REFUSALS:
        raise ProviderRefusedError(NAME, f"error code {code}")
    raise ProviderUnavailableError(NAME, f"error code {code}")
