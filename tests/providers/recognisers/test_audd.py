from datetime import UTC, datetime

import pytest
from starlette.responses import JSONResponse

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers.audd import Audd, Track, recognition_of
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import KEY, IdentifyStub, audd_error, seconds_of
from tests.providers.recognisers.services import EXCERPT


@pytest.fixture
def service_name() -> str:
    return "audd"


async def test_at_most_twelve_seconds_are_sent(remote: IdentifyStub, service: Audd) -> None:
    await service.recognise(EXCERPT)
    sent = remote.received[0]
    assert sent.form == {"api_token": KEY, "return": "apple_music,spotify,deezer,musicbrainz"}
    assert seconds_of(sent.files["file"]) <= 12


def test_every_platform_may_be_missing() -> None:
    track = Track(artist="A", title="T", album="", release_date="None", score=71.6)
    found = recognition_of(track)
    assert found.identity == TrackIdentity(artist="A", title="T", source="audd")
    assert found.confidence == 72


async def test_an_answer_without_a_status_is_a_failure(remote: IdentifyStub, service: Audd) -> None:
    remote.answers["audd"] = lambda: JSONResponse({})
    with pytest.raises(ProviderUnavailableError, match="without a status"):
        await service.recognise(EXCERPT)


async def test_a_new_month_has_a_new_limit(remote: IdentifyStub) -> None:
    now = [datetime(2024, 1, 31, 23, 59, tzinfo=UTC)]
    cap = MonthlyCap(2, clock=lambda: now[0])
    service = Audd(f"{remote.url}/audd", KEY, LocalRateLimiter(), cap)
    for _ in range(2):
        assert await service.recognise(EXCERPT) is not None
    for _ in range(3):
        with pytest.raises(ProviderSkippedError):
            await service.recognise(EXCERPT)
    assert len(remote.received) == 2
    now[0] = datetime(2024, 2, 1, tzinfo=UTC)
    assert await service.recognise(EXCERPT) is not None
    await service.client.close()


async def test_what_is_not_sent_is_not_booked(remote: IdentifyStub) -> None:
    cap = MonthlyCap(2)
    service = Audd(f"{remote.url}/audd", KEY, LocalRateLimiter(), cap)
    remote.answers["audd"] = audd_error(900)
    with pytest.raises(ProviderRefusedError):
        await service.recognise(EXCERPT)
    for _ in range(5):
        with pytest.raises(ProviderSkippedError):  # the circuit is open
            await service.recognise(EXCERPT)
    assert await cap.take("audd")
    assert not await cap.take("audd")
    assert await cap.take("acrcloud")
    await service.client.close()
