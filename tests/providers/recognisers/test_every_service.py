"""What every recognition service must do, whatever its answers look like."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from serve_app.domain.identification import Outcome
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers import acoustid, acrcloud, audd, shazam
from serve_app.services.identify.cascade import IdentifyCascade
from tests.providers.recognisers.identify_stub import (
    ALBUM,
    APPLE,
    ARTIST,
    DEEZER,
    ISRC,
    KEY,
    LABEL,
    MALFORMED,
    MBID,
    SECRET,
    SPOTIFY,
    TITLE,
    YOUTUBE,
    IdentifyStub,
    acrcloud_code,
    acrcloud_found,
    audd_error,
    shazam_found,
    trickle,
)
from tests.providers.recognisers.services import EXCERPT, WHOLE, Service, made

MODULES = {"acoustid": acoustid, "audd": audd, "acrcloud": acrcloud, "shazam": shazam}
REFUSALS: dict[str, Callable[[], Response]] = {
    "acoustid": lambda: JSONResponse({"status": "error", "error": {"code": 4}}, 400),
    "audd": audd_error(900),
    "acrcloud": acrcloud_code(3001),
    "shazam": lambda: PlainTextResponse("Forbidden", 403),
}
CODES = {"audd": audd_error, "acrcloud": acrcloud_code}
TRACK = TrackIdentity(
    artist=ARTIST,
    title=TITLE,
    isrc=ISRC,
    album=ALBUM,
    year=2021,
    label=LABEL,
    genres=("Electronic",),
)


@pytest.fixture(params=MODULES)
def service_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_clip_it_knows_is_a_match(service: Service) -> None:
    assert service.accepts(WHOLE)
    found = await service.recognise(WHOLE)
    assert found is not None
    assert found.identity.source == service.name
    assert 0 < found.confidence <= 100


@pytest.mark.parametrize(
    ("service_name", "expected", "confidence"),
    [
        (
            "audd",
            replace(
                TRACK,
                mbid=MBID,
                spotify_id=SPOTIFY,
                apple_id=APPLE,
                deezer_id=DEEZER,
                duration_s=213,
                artwork_url="https://img.test/600x600bb.jpeg",
            ),
            100,
        ),
        (
            "acrcloud",
            replace(
                TRACK,
                mbid=MBID,
                spotify_id=SPOTIFY,
                deezer_id=DEEZER,
                youtube_id=YOUTUBE,
                duration_s=213,
            ),
            88,
        ),
        ("shazam", replace(TRACK, apple_id=APPLE, artwork_url="https://img.test/400.jpg"), 95),
    ],
)
async def test_what_it_says_of_an_excerpt(
    service: Service, expected: TrackIdentity, confidence: int
) -> None:
    assert service.accepts(EXCERPT)
    found = await service.recognise(EXCERPT)
    assert found is not None
    assert found.identity == replace(expected, source=service.name)
    assert found.confidence == confidence


@pytest.mark.parametrize(
    ("service_name", "code", "error"),
    [
        *(("audd", n, ProviderRefusedError) for n in (19, 31337, *range(900, 906))),
        *(("audd", n, ProviderUnavailableError) for n in (100, 400, 600, 700, 1000)),
        *(("acrcloud", n, ProviderUnavailableError) for n in (2001, 2005, 3000, 3006, 9999)),
        *(("acrcloud", n, ProviderRefusedError) for n in (3001, 3003, 3014)),
        ("acrcloud", 3015, ProviderBusyError),
    ],
)
async def test_error_codes(
    remote: IdentifyStub, service: Service, code: int, error: type[ProviderError]
) -> None:
    remote.answers[service.name] = CODES[service.name](code)
    with pytest.raises(error) as caught:
        await service.recognise(EXCERPT)
    assert type(caught.value) is error
    assert len(remote.received) == 1


@pytest.mark.parametrize(
    ("service_name", "answer"),
    [
        *(("audd", audd_error(code)) for code in (300, 500)),
        *(("acrcloud", acrcloud_code(code)) for code in (1001, 2000, 2002, 2004, 2006)),
        ("acrcloud", acrcloud_code(0)),  # success, but no music in it
        ("acrcloud", acrcloud_found({"title": None})),
        ("audd", lambda: JSONResponse({"status": "success", "result": {"title": None}})),
        ("shazam", shazam_found(-0.0011)),  # too much skew
    ],
)
async def test_nothing_found_or_usable_is_no_match(
    remote: IdentifyStub, service: Service, answer: Callable[[], Response]
) -> None:
    remote.answers[service.name] = answer
    assert await service.recognise(EXCERPT) is None


@pytest.mark.parametrize("service_name", ["audd", "acrcloud"])
async def test_a_month_costs_no_more_than_its_limit(
    remote: IdentifyStub, service_name: str
) -> None:
    service = made(service_name, remote.url, most_calls=1)
    assert await service.recognise(EXCERPT) is not None
    for _ in range(2):
        with pytest.raises(ProviderSkippedError, match="used up") as skipped:
            await service.recognise(EXCERPT)
        assert skipped.value.retry_after_s is None
    await service.client.close()


async def test_a_clip_it_does_not_know_is_no_match(remote: IdentifyStub, service: Service) -> None:
    remote.finds = False
    assert await service.recognise(WHOLE) is None
    assert service.client.breaker.try_pass() == 0


@pytest.mark.parametrize("fault", MALFORMED)
async def test_nonsense_is_a_failure_and_is_not_paid_twice(
    remote: IdentifyStub, service: Service, fault: str
) -> None:
    remote.answers[service.name] = MALFORMED[fault]
    with pytest.raises(ProviderUnavailableError):
        await service.recognise(WHOLE)
    assert len(remote.received) == 1


async def test_nobody_there_is_a_failure(service: Service) -> None:
    lonely = made(service.name, "http://127.0.0.1:1")
    with pytest.raises(ProviderUnavailableError):
        await lonely.recognise(WHOLE)
    await lonely.client.close()


@pytest.mark.parametrize("is_trickling", [True, False])
async def test_a_slow_answer_is_a_failure_and_counts_as_one(
    remote: IdentifyStub, service: Service, monkeypatch: pytest.MonkeyPatch, is_trickling: bool
) -> None:
    monkeypatch.setattr(MODULES[service.name], "TIMEOUT_S", 0.2)
    monkeypatch.setattr(service.client, "_limiter", Unlimited())
    if is_trickling:
        remote.answers[service.name] = trickle
    else:
        remote.delays[service.name] = 0.6
    for _ in range(5):
        with pytest.raises(ProviderUnavailableError, match="too slow"):
            await service.recognise(WHOLE)
    with pytest.raises(ProviderSkippedError, match="left alone"):
        await service.recognise(WHOLE)


async def test_a_hanging_service_is_left_alone_by_the_cascade(
    remote: IdentifyStub, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULES[service.name], "TIMEOUT_S", 0.2)
    monkeypatch.setattr(service, "timeout_s", 0.2)
    monkeypatch.setattr(service.client, "_limiter", Unlimited())
    remote.delays[service.name] = 1
    cascade = IdentifyCascade([service], [service.name])
    outcomes = [(await cascade.identify(WHOLE)).services_tried[service.name] for _ in range(6)]
    assert outcomes == [Outcome.ERROR] * 5 + [Outcome.SKIPPED]


async def test_a_refusal_closes_the_door_and_tells_no_secret(
    remote: IdentifyStub, service: Service
) -> None:
    remote.answers[service.name] = REFUSALS[service.name]
    with pytest.raises(ProviderRefusedError) as refused:
        await service.recognise(WHOLE)
    with pytest.raises(ProviderSkippedError):
        await service.recognise(WHOLE)
    assert len(remote.received) == 1
    assert KEY not in str(refused.value)
    assert SECRET not in str(refused.value)


async def test_too_many_requests_is_an_error_once(remote: IdentifyStub, service: Service) -> None:
    remote.answers[service.name] = lambda: PlainTextResponse(
        "Too many requests", 429, {"Retry-After": "60"}
    )
    with pytest.raises(ProviderError):
        await service.recognise(WHOLE)
    with pytest.raises(ProviderSkippedError):
        await service.recognise(WHOLE)
    assert len(remote.received) == 1


class Unlimited:
    """Lets every call through."""

    async def acquire(self, provider: str, limit: object, max_wait_s: float) -> bool:
        return True
