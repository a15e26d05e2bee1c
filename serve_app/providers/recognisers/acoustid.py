"""AcoustID: recognises whole files by their chromaprint.

It also compares lengths, so excerpts never match: a clip without a complete file's chromaprint is
not sent at all.

References:
    https://acoustid.org/webservice. Data CC BY-SA 3.0.
"""

from pydantic import Field

from pipelines.fingerprint.clip import WHOLE_TRACK_S, Clip
from serve_app.domain.identification import Recognition, ReleaseIds
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
from serve_app.providers.recognisers.calls import within
from serve_app.providers.web.http_client import ProviderClient, Reply
from serve_app.providers.web.wire import Wire, known_id, shape

NAME = "acoustid"
LIMIT = RateLimit(3, 1.0)
TIMEOUT_S = 4.0
META = "recordings releasegroups sources isrcs compress"
MIN_SCORE = 0.5
"""Below this, AcoustID's match is mostly another recording of similar sound."""
REFUSALS = frozenset({4, 6, 12})
CODE_BUSY, CODE_UNKNOWN_FINGERPRINT = 14, 18


class Problem(Wire):
    """An error inside an answer."""

    code: int = 0


class Artist(Wire):
    """One artist of a recording, and what joins it to the next."""

    name: str = ""
    joinphrase: str | None = None


class ReleaseGroup(Wire):
    """An album in all its editions."""

    id: str
    title: str = ""


class Recording(Wire):
    """A MusicBrainz recording, as AcoustID knows it."""

    id: str
    title: str = ""
    duration: float | None = None
    artists: tuple[Artist, ...] = ()
    release_groups: tuple[ReleaseGroup, ...] = Field((), alias="releasegroups")
    sources: int | None = 0
    isrcs: tuple[str, ...] = ()


class Result(Wire):
    """An AcoustID; several recordings may share one, or it may have none."""

    id: str
    score: float = 0.0
    recordings: tuple[Recording, ...] = ()


class Answer(Wire):
    """Any answer."""

    status: str = ""
    error: Problem | None = None
    results: tuple[Result, ...] = ()


class AcoustId:
    """Recognises whole files."""

    name = NAME
    timeout_s = TIMEOUT_S
    terms = ProviderTerms(
        "acoustid_key, and the chromaprint library",
        "Free for non-commercial use, plans for others; data CC BY-SA 3.0.",
    )

    def __init__(self, base_url: str, client_key: str, limiter: RateLimiter) -> None:
        self._key = client_key
        self.client = ProviderClient(
            NAME, base_url, limit=LIMIT, limiter=limiter, read_timeout_s=TIMEOUT_S, max_wait_s=1.0
        )

    def accepts(self, clip: Clip) -> bool:
        """See `Recogniser`: accepts only what may be a whole file."""
        return clip.chromaprint is not None and clip.duration_s >= WHOLE_TRACK_S

    async def recognise(self, clip: Clip) -> Recognition | None:
        """See `Recogniser`."""
        form = {
            "client": self._key,
            "duration": str(int(clip.duration_s)),
            "fingerprint": clip.chromaprint or "",
            "meta": META,
            "format": "json",
        }
        request = self.client.build_post("/lookup", data=form)
        answer = await within(
            self.client, TIMEOUT_S, self.client.send_once("/lookup", _judge, request)
        )
        return best_recognition(answer, clip.duration_s)


def best_recognition(answer: Answer, duration_s: float) -> Recognition | None:
    """Return the recording with the best score; of equals by sources, then by length."""
    found = [
        (result.score, recording)
        for result in answer.results
        if result.score >= MIN_SCORE
        for recording in result.recordings
        if recording.title
    ]
    if not found:
        return None

    def preference(item: tuple[float, Recording]) -> tuple[float, int, float]:
        score, recording = item
        length = recording.duration
        difference = abs(length - duration_s) if length else duration_s
        return score, recording.sources or 0, -difference

    score, best = max(found, key=preference)
    group = best.release_groups[0] if best.release_groups else None
    return Recognition(
        identity=TrackIdentity(
            artist="".join(a.name + (a.joinphrase or "") for a in best.artists),
            title=best.title,
            mbid=known_id(Platform.MBID, best.id),
            isrc=next(filter(None, (known_id(Platform.ISRC, i) for i in best.isrcs)), None),
            album=group.title or None if group else None,
            duration_s=best.duration or None,
            source=NAME,
        ),
        confidence=min(round(100 * score), 100),
        release=ReleaseIds(group_id=known_id(Platform.MBID, group.id)) if group else None,
    )


def _judge(reply: Reply) -> Answer:
    """Raise by the code in the body; by the status if the body has another shape."""
    try:
        answer = shape(Answer, reply.json(), NAME)
    except ProviderUnavailableError:
        reply.check_status()
        raise
    if answer.status == "ok":
        return answer
    if answer.error is None:
        reply.check_status()
        raise ProviderUnavailableError(NAME, "an answer without a status")
    code = answer.error.code
    if code == CODE_UNKNOWN_FINGERPRINT:
        return Answer(status="ok")
    if code == CODE_BUSY:
        raise ProviderBusyError(NAME, "too many requests (code 14)")
    if code in REFUSALS:
        raise ProviderRefusedError(NAME, f"error code {code}")
    raise ProviderUnavailableError(NAME, f"error code {code}")
