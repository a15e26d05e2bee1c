from collections.abc import AsyncIterator

import numpy as np
import pytest

from models.fingerprint.landmarks import Fingerprint
from pipelines.fingerprint.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers.acrcloud import AcrCloud, signature
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    ALBUM,
    ARTIST,
    DEEZER,
    ISRC,
    KEY,
    LABEL,
    MBID,
    SECRET,
    SPOTIFY,
    TITLE,
    YOUTUBE,
    IdentifyStub,
    acrcloud_code,
    acrcloud_found,
    seconds_of,
    wav,
)

NOTHING = np.zeros(0, np.float32)
CLIP = Clip(30.0, Fingerprint(NOTHING, NOTHING, NOTHING, 0), wav(12))


def made(remote: IdentifyStub, secret: str = SECRET, calls: int = 100) -> AcrCloud:
    return AcrCloud(f"{remote.url}/acrcloud", KEY, secret, LocalRateLimiter(), MonthlyCap(calls))


@pytest.fixture
async def service(remote: IdentifyStub) -> AsyncIterator[AcrCloud]:
    one = made(remote)
    yield one
    await one.client.close()


async def test_a_signed_clip_is_recognised(remote: IdentifyStub, service: AcrCloud) -> None:
    assert service.accepts(CLIP)
    found = await service.recognise(CLIP)
    assert found is not None
    assert found.identity == TrackIdentity(
        artist=ARTIST,
        title=TITLE,
        mbid=MBID,
        isrc=ISRC,
        spotify_id=SPOTIFY,
        deezer_id=DEEZER,
        youtube_id=YOUTUBE,
        album=ALBUM,
        year=2021,
        label=LABEL,
        genres=("Electronic",),
        duration_s=213,
        source="acrcloud",
    )
    assert found.confidence == 88
    sent = remote.received[0]
    assert sent.path == "/acrcloud/v1/identify"
    assert sent.form["data_type"] == "audio"
    assert sent.form["signature_version"] == "1"
    assert seconds_of(sent.files["sample"]) <= 12
    assert SECRET not in str(sent.form)


def test_the_signature_is_the_documented_one() -> None:
    # printf 'POST\n/v1/identify\nkey\naudio\n1\n1700000000' | openssl sha1 -hmac secret -binary
    assert signature("key", "secret", "1700000000") == "tWbqxXkbyadGeaHIJS/OzfF+KdU="


async def test_lists_and_odd_dates_are_understood(remote: IdentifyStub, service: AcrCloud) -> None:
    remote.moods["acrcloud"] = acrcloud_found(
        {
            "release_date": "None",
            "genres": None,
            "external_ids": {"isrc": ["bad", ISRC]},
            "external_metadata": {
                "spotify": [{"track": {"id": SPOTIFY}}, {"track": {"id": "x"}}],
                "deezer": [],
                "youtube": [{"vid": YOUTUBE}],
                "musicbrainz": {"track": {"id": MBID}},
                "applemusic": [{"track": {"id": 1600000001}}],
            },
        }
    )
    found = await service.recognise(CLIP)
    assert found is not None
    identity = found.identity
    assert (identity.year, identity.genres, identity.isrc) == (None, (), ISRC)
    assert (identity.spotify_id, identity.deezer_id) == (SPOTIFY, None)
    assert (identity.youtube_id, identity.mbid) == (YOUTUBE, MBID)
    assert identity.apple_id == "1600000001"


@pytest.mark.parametrize("code", [1001, 2000, 2002, 2004, 2006])
async def test_nothing_found_or_usable_is_no_match(
    remote: IdentifyStub, service: AcrCloud, code: int
) -> None:
    remote.moods["acrcloud"] = acrcloud_code(code)
    assert await service.recognise(CLIP) is None


async def test_success_without_music_is_no_match(remote: IdentifyStub, service: AcrCloud) -> None:
    remote.moods["acrcloud"] = acrcloud_code(0)
    assert await service.recognise(CLIP) is None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *((n, ProviderUnavailableError) for n in (2001, 2005, 3000, 3006, 9999)),
        *((n, ProviderRefusedError) for n in (3001, 3003, 3014)),
        (3015, ProviderBusyError),
    ],
)
async def test_error_codes(
    remote: IdentifyStub, service: AcrCloud, code: int, error: type[ProviderError]
) -> None:
    remote.moods["acrcloud"] = acrcloud_code(code)
    with pytest.raises(error) as caught:
        await service.recognise(CLIP)
    assert type(caught.value) is error
    assert len(remote.received) == 1


@pytest.mark.parametrize("code", [3001, 3003, 3014, 3015])
async def test_credentials_and_quota_close_the_door_at_once(
    remote: IdentifyStub, service: AcrCloud, code: int
) -> None:
    remote.moods["acrcloud"] = acrcloud_code(code)
    with pytest.raises(ProviderError):
        await service.recognise(CLIP)
    with pytest.raises(ProviderSkippedError):
        await service.recognise(CLIP)


async def test_a_wrong_secret_is_refused(remote: IdentifyStub) -> None:
    service = made(remote, SECRET + "?")
    with pytest.raises(ProviderRefusedError, match="3014"):
        await service.recognise(CLIP)
    await service.client.close()


async def test_a_month_costs_no_more_than_its_limit(remote: IdentifyStub) -> None:
    service = made(remote, calls=1)
    assert await service.recognise(CLIP) is not None
    with pytest.raises(ProviderSkippedError):
        await service.recognise(CLIP)
    await service.client.close()
