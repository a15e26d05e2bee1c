from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import numpy as np
import pytest
from starlette.responses import JSONResponse

from models.fingerprint_landmarks import Fingerprint
from pipelines.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.identity_ports import (
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
)
from serve_app.providers import audd
from serve_app.providers.audd import Audd, Track, recognition_of
from serve_app.providers.http_client import LocalRateLimiter
from serve_app.providers.identify_calls import MonthlyCap
from tests.providers.identify_stub import (
    ALBUM,
    APPLE,
    ARTIST,
    DEEZER,
    ISRC,
    KEY,
    LABEL,
    MALFORMED,
    MBID,
    SPOTIFY,
    TITLE,
    IdentifyStub,
    audd_error,
    running_identify_stub,
    seconds_of,
    trickle,
    wav,
)

NOTHING = np.zeros(0, np.float32)
CLIP = Clip(30.0, Fingerprint(NOTHING, NOTHING, NOTHING, 0), wav(12))


@pytest.fixture
def stub() -> Iterator[IdentifyStub]:
    with running_identify_stub() as running:
        yield running


@pytest.fixture
async def service(stub: IdentifyStub) -> AsyncIterator[Audd]:
    made = Audd(f"{stub.url}/audd", KEY, LocalRateLimiter(), MonthlyCap(100))
    yield made
    await made.client.close()


async def test_a_clip_is_recognised(stub: IdentifyStub, service: Audd) -> None:
    assert service.accepts(CLIP)
    found = await service.recognise(CLIP)
    assert found is not None
    assert found.identity == TrackIdentity(
        artist=ARTIST,
        title=TITLE,
        mbid=MBID,
        isrc=ISRC,
        spotify_id=SPOTIFY,
        apple_id=APPLE,
        deezer_id=DEEZER,
        album=ALBUM,
        year=2021,
        label=LABEL,
        genres=("Electronic",),
        duration_s=213,
        artwork_url="https://img.test/600x600bb.jpeg",
        source="audd",
    )
    assert found.confidence == 100
    sent = stub.received[0]
    assert sent.form == {"api_token": KEY, "return": "apple_music,spotify,deezer,musicbrainz"}
    assert seconds_of(sent.files["file"]) <= 12


async def test_an_unknown_clip_is_no_match(stub: IdentifyStub, service: Audd) -> None:
    stub.finds = False
    assert await service.recognise(CLIP) is None


def test_every_platform_may_be_missing() -> None:
    track = Track.model_validate(
        {"artist": "A", "title": "T", "album": "", "release_date": "None", "score": 71.6,
         "spotify": None, "apple_music": None, "deezer": None, "musicbrainz": None}
    )  # fmt: skip
    found = recognition_of(track)
    assert found.identity == TrackIdentity(artist="A", title="T", source="audd")
    assert found.confidence == 72


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *((n, ProviderRefusedError) for n in (19, 31337, 900, 901, 902, 903, 904, 905)),
        *((n, ProviderUnavailableError) for n in (100, 400, 600, 700, 1000)),
    ],
)
async def test_error_codes(
    stub: IdentifyStub, service: Audd, code: int, error: type[ProviderError]
) -> None:
    stub.moods["audd"] = audd_error(code)
    with pytest.raises(error) as caught:
        await service.recognise(CLIP)
    assert type(caught.value) is error
    assert len(stub.received) == 1


@pytest.mark.parametrize("code", [300, 500])
async def test_a_clip_it_cannot_use_is_no_match(
    stub: IdentifyStub, service: Audd, code: int
) -> None:
    stub.moods["audd"] = audd_error(code)
    assert await service.recognise(CLIP) is None


@pytest.mark.parametrize("mood", MALFORMED)
async def test_nonsense_is_a_failure_and_is_not_paid_twice(
    stub: IdentifyStub, service: Audd, mood: str
) -> None:
    stub.moods["audd"] = MALFORMED[mood]
    with pytest.raises(ProviderUnavailableError):
        await service.recognise(CLIP)
    assert len(stub.received) == 1


async def test_an_answer_without_a_status_is_a_failure(stub: IdentifyStub, service: Audd) -> None:
    stub.moods["audd"] = lambda: JSONResponse({})
    with pytest.raises(ProviderUnavailableError, match="without a status"):
        await service.recognise(CLIP)


@pytest.mark.parametrize("is_trickling", [True, False])
async def test_a_slow_answer_is_a_failure(
    stub: IdentifyStub, service: Audd, monkeypatch: pytest.MonkeyPatch, is_trickling: bool
) -> None:
    monkeypatch.setattr(audd, "TIMEOUT_S", 0.3)
    if is_trickling:
        stub.moods["audd"] = trickle
    else:
        stub.delays["audd"] = 0.8
    with pytest.raises(ProviderUnavailableError, match="too slow"):
        await service.recognise(CLIP)


async def test_a_month_costs_no_more_than_its_limit(stub: IdentifyStub) -> None:
    now = [datetime(2024, 1, 31, 23, 59, tzinfo=UTC)]
    cap = MonthlyCap(2, clock=lambda: now[0])
    service = Audd(f"{stub.url}/audd", KEY, LocalRateLimiter(), cap)
    for _ in range(2):
        assert await service.recognise(CLIP) is not None
    for _ in range(3):
        with pytest.raises(ProviderSkippedError):
            await service.recognise(CLIP)
    assert len(stub.received) == 2
    now[0] = datetime(2024, 2, 1, tzinfo=UTC)
    assert await service.recognise(CLIP) is not None
    await service.client.close()


async def test_what_is_not_sent_is_not_booked(stub: IdentifyStub) -> None:
    cap = MonthlyCap(2)
    service = Audd(f"{stub.url}/audd", KEY, LocalRateLimiter(), cap)
    stub.moods["audd"] = audd_error(900)
    with pytest.raises(ProviderRefusedError):
        await service.recognise(CLIP)
    for _ in range(5):
        with pytest.raises(ProviderSkippedError):  # the circuit is open
            await service.recognise(CLIP)
    assert await cap.take("audd")
    assert not await cap.take("audd")
    assert await cap.take("acrcloud")
    await service.client.close()
