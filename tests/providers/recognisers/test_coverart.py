from collections.abc import AsyncIterator

import pytest
from starlette.responses import HTMLResponse, PlainTextResponse

from serve_app.domain.identification import ReleaseIds
from serve_app.domain.providers import ProviderUnavailableError
from serve_app.providers.identities.musicbrainz import MusicBrainz
from serve_app.providers.recognisers.coverart import CoverArtArchive
from serve_app.providers.recognisers.releases import MusicBrainzReleases
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    GROUP,
    MALFORMED,
    MBID,
    RELEASE,
    IdentifyStub,
)

OTHER = "c1b2c3d4-0000-4000-8000-00000000beef"


async def no_sleep(seconds: float) -> None:
    pass


@pytest.fixture
async def service(remote: IdentifyStub) -> AsyncIterator[CoverArtArchive]:
    made = CoverArtArchive(f"{remote.url}/coverart", "me@example.org", "1.0", LocalRateLimiter())
    made.client._sleep = no_sleep
    yield made
    await made.client.close()


@pytest.fixture
async def releases(remote: IdentifyStub) -> AsyncIterator[MusicBrainzReleases]:
    made = MusicBrainz(
        f"{remote.url}/musicbrainz", "me@example.org", "1.0", LocalRateLimiter(sleep=no_sleep)
    )
    made.client._sleep = no_sleep
    yield MusicBrainzReleases(made)
    await made.client.close()


async def test_a_releases_cover_is_linked_and_not_fetched(
    remote: IdentifyStub, service: CoverArtArchive
) -> None:
    address = await service.front(ReleaseIds(OTHER, GROUP))
    assert address == f"{remote.url}/coverart/release/{OTHER}/front-500"
    assert [one.path for one in remote.received] == [f"/coverart/release/{OTHER}/front-500"]
    assert remote.received[0].headers["user-agent"] == "afa/1.0 ( me@example.org )"


async def test_its_group_has_a_cover_when_the_release_has_none(
    remote: IdentifyStub, service: CoverArtArchive
) -> None:
    address = await service.front(ReleaseIds(RELEASE, GROUP))
    assert address == f"{remote.url}/coverart/release-group/{GROUP}/front-500"
    assert len(remote.received) == 2


async def test_no_cover_anywhere(remote: IdentifyStub, service: CoverArtArchive) -> None:
    remote.finds = False
    assert await service.front(ReleaseIds(RELEASE, GROUP)) is None
    remote.answers["coverart"] = lambda: HTMLResponse("<html>invalid MBID</html>", 400)
    assert await service.front(ReleaseIds(OTHER)) is None


@pytest.mark.parametrize("release", [ReleaseIds(), ReleaseIds("../x", "nothing like an id")])
async def test_nothing_is_asked_for_what_is_no_id(
    remote: IdentifyStub, service: CoverArtArchive, release: ReleaseIds
) -> None:
    assert await service.front(release) is None
    assert remote.received == []


async def test_a_busy_archive_is_a_failure(remote: IdentifyStub, service: CoverArtArchive) -> None:
    remote.answers["coverart"] = lambda: PlainTextResponse("busy", 503)
    with pytest.raises(ProviderUnavailableError):
        await service.front(ReleaseIds(OTHER))
    assert len(remote.received) == 3


async def test_the_earliest_official_release_is_shown(
    remote: IdentifyStub, releases: MusicBrainzReleases
) -> None:
    assert await releases.release_of(MBID) == ReleaseIds(RELEASE, GROUP)
    assert remote.received[0].path == f"/musicbrainz/recording/{MBID}"
    assert remote.received[0].query == {"inc": "releases release-groups", "fmt": "json"}


async def test_an_unknown_recording_has_no_release(
    remote: IdentifyStub, releases: MusicBrainzReleases
) -> None:
    remote.finds = False
    assert await releases.release_of(MBID) is None


@pytest.mark.parametrize("fault", MALFORMED)
async def test_nonsense_is_a_failure(
    remote: IdentifyStub, releases: MusicBrainzReleases, fault: str
) -> None:
    remote.answers["musicbrainz"] = MALFORMED[fault]
    with pytest.raises(ProviderUnavailableError):
        await releases.release_of(MBID)
