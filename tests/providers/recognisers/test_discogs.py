from collections.abc import AsyncIterator

import pytest
from starlette.responses import JSONResponse, Response

from serve_app.domain.identification import ReleaseFacts
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderUnavailableError,
)
from serve_app.providers.recognisers.discogs import LIMIT, Discogs
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.identify_stub import (
    ALBUM,
    ARTIST,
    KEY,
    LABEL,
    MALFORMED,
    TITLE,
    IdentifyStub,
)

TRACK = TrackIdentity(artist=ARTIST, title=TITLE, album=ALBUM)


async def no_sleep(seconds: float) -> None:
    pass


def made(remote: IdentifyStub, token: str = KEY) -> Discogs:
    one = Discogs(f"{remote.url}/discogs", token, "admin@example.org", "1.0", LocalRateLimiter())
    one.client._sleep = no_sleep
    return one


@pytest.fixture
async def service(remote: IdentifyStub) -> AsyncIterator[Discogs]:
    one = made(remote)
    yield one
    await one.client.close()


async def test_the_albums_own_release_is_chosen(remote: IdentifyStub, service: Discogs) -> None:
    assert await service.facts(TRACK) == ReleaseFacts(
        label=LABEL, genres=("Electronic",), styles=("Chiptune", "Electro")
    )
    sent = remote.received[0]
    assert sent.path == "/discogs/database/search"
    assert sent.query == {
        "artist": ARTIST, "track": TITLE, "type": "release", "per_page": "10", "page": "1"
    }  # fmt: skip
    assert sent.headers["user-agent"] == "afa/1.0 ( admin@example.org )"


async def test_without_an_album_the_first_of_the_artist_and_never_a_compilation(
    service: Discogs,
) -> None:
    facts = await service.facts(TrackIdentity(artist=ARTIST, title=TITLE))
    assert facts == ReleaseFacts(label="Elsewhere", genres=("Electronic",)) or facts == (
        ReleaseFacts(label="Old Label", genres=("Electronic",))
    )


async def test_another_artist_gets_nothing(service: Discogs) -> None:
    assert await service.facts(TrackIdentity(artist="Somebody Else", title=TITLE)) is None


async def test_nothing_known_or_nothing_asked(remote: IdentifyStub, service: Discogs) -> None:
    assert await service.facts(TrackIdentity(title=TITLE)) is None
    assert remote.received == []
    remote.finds = False
    assert await service.facts(TRACK) is None
    remote.answers["discogs"] = lambda: JSONResponse({"message": "Release not found."}, 404)
    assert await service.facts(TRACK) is None


async def test_a_wrong_token_is_a_refusal(remote: IdentifyStub) -> None:
    service = made(remote, "wrong")
    with pytest.raises(ProviderRefusedError) as caught:
        await service.facts(TRACK)
    assert "wrong" not in str(caught.value)
    await service.client.close()


def too_many() -> Response:
    message = {"message": "You are making requests too quickly."}
    return JSONResponse(message, 429, {"Retry-After": "30"})


async def test_its_rate_limit_is_kept_and_understood(
    remote: IdentifyStub, service: Discogs
) -> None:
    assert LIMIT.n_calls / LIMIT.window_s < 1
    remote.answers["discogs"] = too_many
    with pytest.raises(ProviderBusyError):
        await service.facts(TRACK)
    assert len(remote.received) == 1


@pytest.mark.parametrize("fault", MALFORMED)
async def test_nonsense_is_a_failure(remote: IdentifyStub, service: Discogs, fault: str) -> None:
    remote.answers["discogs"] = MALFORMED[fault]
    with pytest.raises(ProviderError) as caught:
        await service.facts(TRACK)
    assert type(caught.value) is ProviderUnavailableError
