import pytest

from serve_app.domain.providers import ProviderError, ProviderRefusedError, ProviderSkippedError
from serve_app.providers.recognisers.acrcloud import AcrCloud, signature
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    ISRC,
    KEY,
    MBID,
    SECRET,
    SPOTIFY,
    YOUTUBE,
    IdentifyStub,
    acrcloud_code,
    acrcloud_found,
    seconds_of,
)
from tests.providers.recognisers.services import EXCERPT


@pytest.fixture
def service_name() -> str:
    return "acrcloud"


async def test_a_signed_clip_is_sent(remote: IdentifyStub, service: AcrCloud) -> None:
    await service.recognise(EXCERPT)
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
    remote.answers["acrcloud"] = acrcloud_found(
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
    found = await service.recognise(EXCERPT)
    assert found is not None
    identity = found.identity
    assert (identity.year, identity.genres, identity.isrc) == (None, (), ISRC)
    assert (identity.spotify_id, identity.deezer_id) == (SPOTIFY, None)
    assert (identity.youtube_id, identity.mbid) == (YOUTUBE, MBID)
    assert identity.apple_id == "1600000001"


@pytest.mark.parametrize("code", [3001, 3003, 3014, 3015])
async def test_credentials_and_quota_close_the_door_at_once(
    remote: IdentifyStub, service: AcrCloud, code: int
) -> None:
    remote.answers["acrcloud"] = acrcloud_code(code)
    with pytest.raises(ProviderError):
        await service.recognise(EXCERPT)
    with pytest.raises(ProviderSkippedError):
        await service.recognise(EXCERPT)


async def test_a_wrong_secret_is_refused(remote: IdentifyStub) -> None:
    url = f"{remote.url}/acrcloud"
    service = AcrCloud(url, KEY, SECRET + "?", LocalRateLimiter(), MonthlyCap(100))
    with pytest.raises(ProviderRefusedError, match="3014"):
        await service.recognise(EXCERPT)
    await service.client.close()
