from collections.abc import AsyncIterator
from datetime import UTC, datetime

import numpy as np
import pytest
from starlette.responses import JSONResponse

from models.fingerprint.landmarks import Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers.audd import Audd, Track, recognition_of
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    ALBUM,
    APPLE,
    ARTIST,
    DEEZER,
    ISRC,
    KEY,
    LABEL,
    MBID,
    SPOTIFY,
    TITLE,
    IdentifyStub,
    audd_error,
    seconds_of,
    wav,
)

NOTHING = np.zeros(0, np.float32)
CLIP = Clip(30.0, Fingerprint(NOTHING, NOTHING, NOTHING, 0), wav(12))


@pytest.fixture
async def service(remote: IdentifyStub) -> AsyncIterator[Audd]:
    made = Audd(f"{remote.url}/audd", KEY, LocalRateLimiter(), MonthlyCap(100))
    yield made
    await made.client.close()


async def test_a_clip_is_recognised(remote: IdentifyStub, service: Audd) -> None:
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
    sent = remote.received[0]
    assert sent.form == {"api_token": KEY, "return": "apple_music,spotify,deezer,musicbrainz"}
    assert seconds_of(sent.files["file"]) <= 12


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
    remote: IdentifyStub, service: Audd, code: int, error: type[ProviderError]
) -> None:
    remote.moods["audd"] = audd_error(code)
    with pytest.raises(error) as caught:
        await service.recognise(CLIP)
    assert type(caught.value) is error
    assert len(remote.received) == 1


@pytest.mark.parametrize("code", [300, 500])
async def test_a_clip_it_cannot_use_is_no_match(
    remote: IdentifyStub, service: Audd, code: int
) -> None:
    remote.moods["audd"] = audd_error(code)
    assert await service.recognise(CLIP) is None


async def test_an_answer_without_a_status_is_a_failure(remote: IdentifyStub, service: Audd) -> None:
    remote.moods["audd"] = lambda: JSONResponse({})
    with pytest.raises(ProviderUnavailableError, match="without a status"):
        await service.recognise(CLIP)


async def test_a_month_costs_no_more_than_its_limit(remote: IdentifyStub) -> None:
    now = [datetime(2024, 1, 31, 23, 59, tzinfo=UTC)]
    cap = MonthlyCap(2, clock=lambda: now[0])
    service = Audd(f"{remote.url}/audd", KEY, LocalRateLimiter(), cap)
    for _ in range(2):
        assert await service.recognise(CLIP) is not None
    for _ in range(3):
        with pytest.raises(ProviderSkippedError):
            await service.recognise(CLIP)
    assert len(remote.received) == 2
    now[0] = datetime(2024, 2, 1, tzinfo=UTC)
    assert await service.recognise(CLIP) is not None
    await service.client.close()


async def test_what_is_not_sent_is_not_booked(remote: IdentifyStub) -> None:
    cap = MonthlyCap(2)
    service = Audd(f"{remote.url}/audd", KEY, LocalRateLimiter(), cap)
    remote.moods["audd"] = audd_error(900)
    with pytest.raises(ProviderRefusedError):
        await service.recognise(CLIP)
    for _ in range(5):
        with pytest.raises(ProviderSkippedError):  # the circuit is open
            await service.recognise(CLIP)
    assert await cap.take("audd")
    assert not await cap.take("audd")
    assert await cap.take("acrcloud")
    await service.client.close()
