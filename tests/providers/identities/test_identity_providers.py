from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    IdentityProvider,
    ProviderBusyError,
    ProviderError,
    ProviderRefusedError,
    ProviderSkippedError,
    ProviderUnavailableError,
    RateLimit,
)
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.identities.deezer import DeezerPreviews
from serve_app.providers.identities.jamendo import JamendoAudio
from serve_app.providers.identities.registry import (
    ALL,
    Providers,
    ProviderSettings,
    build_providers,
)
from serve_app.providers.identities.youtube import OEmbed, identity_of
from serve_app.providers.web.http_client import ProviderClient
from tests.providers.stub_server import (
    ALBUM,
    APPLE,
    ARTIST,
    CLIENT,
    DEEZER,
    ISRC,
    LIVE_MBID,
    MBID,
    MERGED_MBID,
    SPOTIFY,
    TITLE,
    YOUTUBE,
    Stub,
)


class Unlimited:
    def __init__(self) -> None:
        self.asked: list[tuple[str, RateLimit]] = []

    async def acquire(self, provider: str, limit: RateLimit, max_wait_s: float) -> bool:
        self.asked.append((provider, limit))
        return True


def stub_settings(stub: Stub) -> ProviderSettings:
    return ProviderSettings(
        version="1.2.3",
        contact="ops@example.org",
        musicbrainz_base_url=f"{stub.url}/musicbrainz",
        listenbrainz_token=CLIENT[1],
        listenbrainz_base_url=f"{stub.url}/listenbrainz",
        youtube_enabled=True,
        youtube_oembed_url=f"{stub.url}/youtube/oembed",
        deezer_enabled=True,
        deezer_previews_enabled=True,
        deezer_base_url=f"{stub.url}/deezer",
        itunes_enabled=True,
        itunes_base_url=f"{stub.url}/itunes",
        spotify_client_id=CLIENT[0],
        spotify_client_secret=CLIENT[1],
        spotify_base_url=f"{stub.url}/spotify/v1",
        spotify_token_url=f"{stub.url}/spotify/api/token",
        jamendo_client_id=CLIENT[0],
        jamendo_base_url=f"{stub.url}/jamendo",
    )


async def no_sleep(seconds: float) -> None:
    return None


@pytest.fixture
async def providers(stub: Stub) -> AsyncIterator[Providers]:
    made = build_providers(stub_settings(stub), Unlimited())
    for client in clients_of(made):
        client._sleep = no_sleep
    yield made
    await close(made)


def clients_of(providers: Providers) -> list[ProviderClient]:
    made = (*providers.identities, *providers.audio)
    return [one.client for one in made if hasattr(one, "client")]


async def close(providers: Providers) -> None:
    for client in clients_of(providers):
        await client.close()


def named(providers: Providers, name: str) -> IdentityProvider:
    return next(one for one in providers.identities if one.name == name)


def source(providers: Providers, name: str) -> Any:
    return next(one for one in providers.audio if one.name == name)


FROM_MUSICBRAINZ = TrackIdentity(
    artist=ARTIST,
    title=TITLE,
    mbid=MBID,
    isrc=ISRC,
    spotify_id=SPOTIFY,
    apple_id=APPLE,
    deezer_id=DEEZER,
    youtube_id=YOUTUBE,
    album=ALBUM,
    year=2021,
    genres=("electronic",),
    duration_s=213.0,
    source="musicbrainz",
)


@pytest.mark.parametrize(
    ("track_id", "paths"),
    [
        (TrackId(Platform.MBID, MBID), [f"/recording/{MBID}"]),
        (
            TrackId(Platform.MBID, MERGED_MBID),
            [f"/recording/{MERGED_MBID}", f"/recording/{MBID}"],
        ),
        (TrackId(Platform.ISRC, ISRC), [f"/isrc/{ISRC}"]),
        (TrackId(Platform.SPOTIFY, SPOTIFY), ["/url", f"/recording/{MBID}"]),
        (TrackId(Platform.DEEZER, DEEZER), ["/url", f"/recording/{MBID}"]),
        (TrackId(Platform.YOUTUBE, YOUTUBE), ["/url", f"/recording/{MBID}"]),
        (TrackId(Platform.APPLE, APPLE), ["/url", f"/recording/{MBID}"]),
    ],
)
async def test_musicbrainz_finds_a_recording_by_each_identifier(
    stub: Stub, providers: Providers, track_id: TrackId, paths: list[str]
) -> None:
    assert await named(providers, "musicbrainz").by_id(track_id) == FROM_MUSICBRAINZ
    assert stub.paths("musicbrainz") == paths
    for request in stub.requests:
        assert request.headers["user-agent"] == "afa/1.2.3 ( ops@example.org )"
        assert request.query_params["fmt"] == "json"
        assert " " not in request.url.query


async def test_musicbrainz_asks_for_several_storefronts_at_once(
    stub: Stub, providers: Providers
) -> None:
    await named(providers, "musicbrainz").by_id(TrackId(Platform.APPLE, APPLE, "se"))
    resources = stub.requests[0].query_params.getlist("resource")
    assert resources[0] == f"https://music.apple.com/se/song/{APPLE}"
    assert f"https://music.apple.com/gb/song/{APPLE}" in resources


@pytest.mark.parametrize(
    ("name", "track_id"),
    [
        ("musicbrainz", TrackId(Platform.MBID, LIVE_MBID)),
        ("musicbrainz", TrackId(Platform.ISRC, "QZTST2199999")),
        ("musicbrainz", TrackId(Platform.SPOTIFY, "2" * 22)),
        ("musicbrainz", TrackId(Platform.APPLE, "99999")),
        ("listenbrainz", TrackId(Platform.MBID, LIVE_MBID)),
        ("deezer", TrackId(Platform.DEEZER, "5")),
        ("deezer", TrackId(Platform.ISRC, "QZTST2199999")),
        ("itunes", TrackId(Platform.APPLE, "1600000000")),
        ("itunes", TrackId(Platform.APPLE, "99999")),
        ("itunes", TrackId(Platform.APPLE, APPLE, "uk")),
        ("spotify", TrackId(Platform.SPOTIFY, "2" * 22)),
        ("spotify", TrackId(Platform.SPOTIFY, "z" * 22)),
        ("spotify", TrackId(Platform.ISRC, "QZTST2199999")),
        ("youtube", TrackId(Platform.YOUTUBE, "StubVideo0Z")),
        ("youtube", TrackId(Platform.YOUTUBE, "StubVideo0I")),
    ],
)
async def test_an_unknown_track_is_none_and_no_failure(
    providers: Providers, name: str, track_id: TrackId
) -> None:
    provider = named(providers, name)
    for _ in range(6):
        assert await provider.by_id(track_id) is None


@pytest.mark.parametrize(
    ("name", "track_id", "expected"),
    [
        (
            "listenbrainz",
            TrackId(Platform.MBID, MBID),
            TrackIdentity(
                ARTIST, TITLE, mbid=MBID, album=ALBUM, year=2021, genres=("electronic",),
                duration_s=213.0, source="listenbrainz",
            ),
        ),
        (
            "deezer",
            TrackId(Platform.ISRC, ISRC),
            TrackIdentity(
                ARTIST, TITLE, isrc=ISRC, deezer_id=DEEZER, album=ALBUM, year=2021,
                duration_s=213.0, artwork_url="https://e.org/1000.jpg", source="deezer",
            ),
        ),
        (
            "itunes",
            TrackId(Platform.APPLE, APPLE, "gb"),
            TrackIdentity(
                ARTIST, TITLE, apple_id=APPLE, album=ALBUM, year=2021, genres=("Electronic",),
                duration_s=213.0, artwork_url="https://e.org/600x600bb.jpg", source="itunes",
            ),
        ),
        (
            "spotify",
            TrackId(Platform.ISRC, ISRC),
            TrackIdentity(
                ARTIST, TITLE, isrc=ISRC, spotify_id=SPOTIFY, album=ALBUM, year=2021,
                duration_s=213.4, artwork_url="https://i.org/640", source="spotify",
            ),
        ),
        (
            "youtube",
            TrackId(Platform.YOUTUBE, YOUTUBE),
            TrackIdentity(ARTIST, TITLE, youtube_id=YOUTUBE, source="youtube"),
        ),
        (
            "youtube",
            TrackId(Platform.YOUTUBE, "StubVideo0E"),
            TrackIdentity(ARTIST, TITLE, youtube_id="StubVideo0E", source="youtube"),
        ),
    ],
)  # fmt: skip
async def test_each_provider_reads_its_own_shape(
    providers: Providers, name: str, track_id: TrackId, expected: TrackIdentity
) -> None:
    assert await named(providers, name).by_id(track_id) == expected


async def test_itunes_passes_the_storefront_on(stub: Stub, providers: Providers) -> None:
    provider = named(providers, "itunes")
    await provider.by_id(TrackId(Platform.APPLE, APPLE, "gb"))
    await provider.by_id(TrackId(Platform.APPLE, APPLE))
    assert [one.query_params["country"] for one in stub.requests] == ["GB", "US"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("musicbrainz", MBID),
        ("listenbrainz", MBID),
        ("deezer", DEEZER),
        ("itunes", APPLE),
        ("spotify", SPOTIFY),
    ],
)
async def test_a_search_takes_the_studio_version_only(
    providers: Providers, name: str, expected: str
) -> None:
    provider = named(providers, name)
    matches = await provider.search(ARTIST, f"{TITLE} (feat. Ada)", 213.0)
    assert [match.score for match in matches] == [1.0]
    assert matches[0].identity.id_of(provider.platforms[0]) == expected
    assert await provider.search(ARTIST, "Paper Planes") == []
    assert await provider.search(ARTIST, TITLE, 300.0) == []


async def test_deezer_completes_its_best_match(stub: Stub, providers: Providers) -> None:
    matches = await named(providers, "deezer").search(ARTIST, TITLE)
    assert matches[0].identity.isrc == ISRC
    query = stub.requests[0].query_params
    assert query["q"] == f'artist:"{ARTIST}" track:"{TITLE}"'
    assert query["strict"] == "on"


async def test_musicbrainz_escapes_lucene(stub: Stub, providers: Providers) -> None:
    await named(providers, "musicbrainz").search('A"C/DC', "What? (Yes!)")
    assert stub.requests[0].query_params["query"] == (
        r'recording:"What\? \(Yes\!\)" AND artist:"A\"C\/DC"'
    )


BY_ID = {
    "musicbrainz": TrackId(Platform.MBID, MBID),
    "listenbrainz": TrackId(Platform.MBID, MBID),
    "deezer": TrackId(Platform.DEEZER, DEEZER),
    "itunes": TrackId(Platform.APPLE, APPLE),
    "spotify": TrackId(Platform.SPOTIFY, SPOTIFY),
    "youtube": TrackId(Platform.YOUTUBE, YOUTUBE),
}


@pytest.mark.parametrize("name", list(BY_ID))
async def test_each_rate_limit_is_recognised_and_leaves_the_provider_alone(
    stub: Stub, providers: Providers, name: str
) -> None:
    stub.faults[name] = "rate_limited"
    with pytest.raises(ProviderBusyError):
        await named(providers, name).by_id(BY_ID[name])
    n_calls = len(stub.requests)
    assert n_calls <= 3
    for _ in range(4):
        with pytest.raises(ProviderError):
            await named(providers, name).by_id(BY_ID[name])
    with pytest.raises(ProviderSkippedError):
        await named(providers, name).by_id(BY_ID[name])


NONSENSE = ["down", "html", "cut_off", "wrong_shape", "list", "redirect"]


# ListenBrainz reports an unknown id with an object that lacks the MBID, so no shape is wrong.
@pytest.mark.parametrize(
    ("name", "fault"),
    [(n, m) for n in BY_ID for m in NONSENSE if (n, m) != ("listenbrainz", "wrong_shape")],
)
async def test_nonsense_is_a_failure_and_never_a_missing_track(
    stub: Stub, providers: Providers, name: str, fault: str
) -> None:
    stub.faults[name] = fault
    with pytest.raises((ProviderUnavailableError, ProviderRefusedError)):
        await named(providers, name).by_id(BY_ID[name])


async def test_a_storm_of_503_passes(stub: Stub, providers: Providers) -> None:
    stub.faults["musicbrainz"], stub.fault_lasts["musicbrainz"] = "rate_limited", 2
    found = await named(providers, "musicbrainz").by_id(TrackId(Platform.MBID, MBID))
    assert found == FROM_MUSICBRAINZ
    assert len(stub.requests) == 3


async def test_spotify_gets_one_token_and_replaces_a_revoked_one(
    stub: Stub, providers: Providers
) -> None:
    spotify = named(providers, "spotify")
    for _ in range(3):
        assert await spotify.by_id(BY_ID["spotify"]) is not None
    assert len(stub.tokens) == 1
    stub.tokens.append("revoked")
    assert await spotify.by_id(BY_ID["spotify"]) is not None
    assert len(stub.tokens) == 3


async def test_wrong_spotify_credentials_are_a_refusal(stub: Stub) -> None:
    settings = replace(stub_settings(stub), spotify_client_secret="wrong")  # noqa: S106
    made = build_providers(settings, Unlimited())
    with pytest.raises(ProviderRefusedError, match="client id or secret"):
        await named(made, "spotify").by_id(BY_ID["spotify"])
    with pytest.raises(ProviderSkippedError):
        await named(made, "spotify").by_id(BY_ID["spotify"])
    await close(made)


PAPER = TrackIdentity(artist=ARTIST, title=TITLE, isrc=ISRC, duration_s=213.0)


async def test_jamendo_offers_free_audio_and_names_its_licence(
    stub: Stub, providers: Providers
) -> None:
    jamendo = source(providers, "jamendo")
    found = await jamendo.locate(PAPER)
    assert found.url == "https://prod-1.storage.jamendo.com/download/track/168/mp32/"
    assert found.licence == "http://creativecommons.org/licenses/by-sa/3.0/"
    assert not found.is_preview
    assert await jamendo.locate(replace(PAPER, duration_s=100.0)) is None
    assert await jamendo.locate(replace(PAPER, title="Restricted")) is None
    assert await jamendo.locate(replace(PAPER, title="Closed")) is None
    assert await jamendo.locate(TrackIdentity(isrc=ISRC)) is None


async def test_jamendo_uses_restricted_licences_only_on_request(stub: Stub) -> None:
    settings = replace(stub_settings(stub), jamendo_allow_restricted=True)
    made = build_providers(settings, Unlimited())
    assert await source(made, "jamendo").locate(replace(PAPER, title="Restricted")) is not None
    assert await source(made, "jamendo").locate(replace(PAPER, title="Closed")) is None
    await close(made)


@pytest.mark.parametrize(
    ("fault", "error"), [("rate_limited", ProviderBusyError), ("html", ProviderUnavailableError)]
)
async def test_jamendo_errors_inside_200_are_failures(
    stub: Stub, providers: Providers, fault: str, error: type[ProviderError]
) -> None:
    stub.faults["jamendo"] = fault
    with pytest.raises(error):
        await source(providers, "jamendo").locate(PAPER)


async def test_a_wrong_jamendo_client_is_a_refusal(stub: Stub) -> None:
    client = JamendoAudio(f"{stub.url}/jamendo", "wrong", False, Unlimited())
    with pytest.raises(ProviderRefusedError):
        await client.locate(PAPER)
    await client.client.close()


async def test_a_deezer_preview_is_marked_as_what_it_is(providers: Providers) -> None:
    found = await source(providers, "deezer_preview").locate(PAPER)
    assert (found.is_preview, found.is_transient) == (True, True)
    assert "hdnea" in found.url
    assert await source(providers, "deezer_preview").locate(TrackIdentity(artist="x")) is None


async def test_limits_are_the_published_ones_or_below(stub: Stub) -> None:
    limiter = Unlimited()
    made = build_providers(stub_settings(stub), limiter)
    for name, track_id in BY_ID.items():
        await named(made, name).by_id(track_id)
    limits = dict(limiter.asked)
    assert limits["musicbrainz"] == RateLimit(1, 1.0)
    assert limits["deezer"] == RateLimit(45, 5.0)
    assert limits["itunes"] == RateLimit(18, 60.0)
    await close(made)


async def test_listenbrainz_is_not_searched_without_a_token(stub: Stub) -> None:
    made = build_providers(replace(stub_settings(stub), listenbrainz_token=""), Unlimited())
    listenbrainz = named(made, "listenbrainz")
    assert not listenbrainz.can_search
    assert await listenbrainz.by_id(BY_ID["listenbrainz"]) is not None
    await close(made)


async def test_nothing_is_on_by_default_but_the_catalog() -> None:
    made = build_providers(ProviderSettings(version="1"), Unlimited())
    assert made.identities == []
    assert [one.name for one in made.audio] == ["catalog"]
    assert [(one.name, one.is_on) for one in made.statuses] == [
        ("catalog", True),
        ("musicbrainz", False),
        ("listenbrainz", False),
        ("youtube", False),
        ("jamendo", False),
        ("deezer", False),
        ("deezer_preview", False),
        ("itunes", False),
        ("spotify", False),
    ]
    assert all(one.terms.enabled_by and one.terms.terms for one in ALL)


def test_previews_without_deezer_are_a_mistake() -> None:
    settings = ProviderSettings(version="1", deezer_previews_enabled=True)
    with pytest.raises(ValueError, match="previews"):
        build_providers(settings, Unlimited())
    assert DeezerPreviews.name == "deezer_preview"


def test_settings_do_not_show_their_secrets() -> None:
    settings = ProviderSettings(version="1", spotify_client_secret="s3cret")  # noqa: S106
    assert "s3cret" not in f"{settings!r} {settings}"


@pytest.mark.parametrize(
    ("title", "author", "artist", "track"),
    [
        ("Paper Lanterns", "The Stub Quartet - Topic", "The Stub Quartet", "Paper Lanterns"),
        ("The Stub Quartet - Paper Lanterns", "VEVO", "The Stub Quartet", "Paper Lanterns"),
        ("Paper Lanterns", "The Stub Quartet", "The Stub Quartet", "Paper Lanterns"),
    ],
)
def test_a_video_is_named_by_its_channel_or_its_title(
    title: str, author: str, artist: str, track: str
) -> None:
    found = identity_of("StubVideo0A", OEmbed(title=title, author_name=author))
    assert (found.artist, found.title) == (artist, track)
