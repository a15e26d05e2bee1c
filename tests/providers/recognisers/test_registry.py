"""What every recognition service must do alike, whatever its answers look like."""

from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from models.fingerprint.landmarks import Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.domain.providers import (
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers import acoustid, acrcloud, audd, shazam
from serve_app.providers.recognisers.acoustid import AcoustId
from serve_app.providers.recognisers.acrcloud import AcrCloud
from serve_app.providers.recognisers.audd import Audd
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.registry import RecogniserSettings, build_sources
from serve_app.providers.recognisers.shazam import Shazam
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    KEY,
    MALFORMED,
    SECRET,
    IdentifyStub,
    acrcloud_code,
    audd_error,
    trickle,
    wav,
)

NOTHING = np.zeros(0, np.float32)
CLIP = Clip(213.0, Fingerprint(NOTHING, NOTHING, NOTHING, 0), wav(12), "AQAAfingerprint")
MODULES = {"acoustid": acoustid, "audd": audd, "acrcloud": acrcloud, "shazam": shazam}
REFUSALS: dict[str, Callable[[], Response]] = {
    "acoustid": lambda: JSONResponse({"status": "error", "error": {"code": 4}}, 400),
    "audd": audd_error(900),
    "acrcloud": acrcloud_code(3001),
    "shazam": lambda: PlainTextResponse("Forbidden", 403),
}

Service = AcoustId | Audd | AcrCloud | Shazam


async def sign(excerpt: bytes) -> tuple[str, int]:
    return "data:audio/vnd.shazam.sig;base64,AAAA", 12_000


def made(name: str, url: str) -> Service:
    limiter, cap = LocalRateLimiter(), MonthlyCap(100)
    if name == "acoustid":
        return AcoustId(f"{url}/acoustid/v2", KEY, limiter)
    if name == "audd":
        return Audd(f"{url}/audd", KEY, limiter, cap)
    if name == "acrcloud":
        return AcrCloud(f"{url}/acrcloud", KEY, SECRET, limiter, cap)
    return Shazam(f"{url}/shazam", sign, limiter)


@pytest.fixture(params=MODULES)
async def service(request: pytest.FixtureRequest, remote: IdentifyStub) -> AsyncIterator[Service]:
    one = made(request.param, remote.url)
    yield one
    await one.client.close()


async def test_a_clip_it_knows_is_a_match(service: Service) -> None:
    assert service.accepts(CLIP)
    found = await service.recognise(CLIP)
    assert found is not None
    assert found.identity.source == service.name
    assert 0 < found.confidence <= 100


async def test_a_clip_it_does_not_know_is_no_match(remote: IdentifyStub, service: Service) -> None:
    remote.finds = False
    assert await service.recognise(CLIP) is None
    assert service.client.breaker.try_pass() == 0


@pytest.mark.parametrize("mood", MALFORMED)
async def test_nonsense_is_a_failure_and_is_not_paid_twice(
    remote: IdentifyStub, service: Service, mood: str
) -> None:
    remote.moods[service.name] = MALFORMED[mood]
    with pytest.raises(ProviderUnavailableError):
        await service.recognise(CLIP)
    assert len(remote.received) == 1


async def test_nobody_there_is_a_failure(service: Service) -> None:
    lonely = made(service.name, "http://127.0.0.1:1")
    with pytest.raises(ProviderUnavailableError):
        await lonely.recognise(CLIP)
    await lonely.client.close()


@pytest.mark.parametrize("is_trickling", [True, False])
async def test_a_slow_answer_is_a_failure_and_counts_as_one(
    remote: IdentifyStub, service: Service, monkeypatch: pytest.MonkeyPatch, is_trickling: bool
) -> None:
    monkeypatch.setattr(MODULES[service.name], "TIMEOUT_S", 0.2)
    monkeypatch.setattr(service.client, "_limiter", Unlimited())
    if is_trickling:
        remote.moods[service.name] = trickle
    else:
        remote.delays[service.name] = 0.6
    for _ in range(5):
        with pytest.raises(ProviderUnavailableError, match="too slow"):
            await service.recognise(CLIP)
    with pytest.raises(ProviderSkippedError, match="left alone"):
        await service.recognise(CLIP)


async def test_a_refusal_closes_the_door_and_tells_no_secret(
    remote: IdentifyStub, service: Service
) -> None:
    remote.moods[service.name] = REFUSALS[service.name]
    with pytest.raises(ProviderRefusedError) as refused:
        await service.recognise(CLIP)
    with pytest.raises(ProviderSkippedError):
        await service.recognise(CLIP)
    assert len(remote.received) == 1
    assert KEY not in str(refused.value)
    assert SECRET not in str(refused.value)


async def test_too_many_requests_is_an_error_once(remote: IdentifyStub, service: Service) -> None:
    remote.moods[service.name] = lambda: PlainTextResponse(
        "Too many requests", 429, {"Retry-After": "60"}
    )
    with pytest.raises(ProviderError):
        await service.recognise(CLIP)
    with pytest.raises(ProviderSkippedError):
        await service.recognise(CLIP)
    assert len(remote.received) == 1


class Unlimited:
    """Lets everybody through."""

    async def acquire(self, provider: str, limit: object, max_wait_s: float) -> bool:
        return True


class Unsure:
    """The own index's place in the list."""

    name = "local"


def sources(**settings: object) -> list[str]:
    built = build_sources(
        RecogniserSettings("1.0", **settings),  # type: ignore[arg-type]
        LocalRateLimiter(),
        MonthlyCap(1),
        Unsure(),  # type: ignore[arg-type]
    )
    return [one.name for one in built.recognisers]


def test_a_service_is_off_until_it_has_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources() == ["local"]
    assert sources(acrcloud_key="k") == ["local"]
    names = ("acoustid_key", "audd_token", "acrcloud_key", "acrcloud_secret")
    assert sources(**dict.fromkeys(names, "x")) == ["local", "acoustid", "audd", "acrcloud"]
    monkeypatch.setattr("serve_app.providers.recognisers.registry.installed_signer", lambda: sign)
    assert sources() == ["local"]
    assert sources(shazam_enabled=True) == ["local", "shazam"]
