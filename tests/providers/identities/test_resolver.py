import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from serve_app.domain.identity import TrackIdentity, from_json, to_json
from serve_app.domain.providers import (
    AmbiguousIdError,
    AudioLocation,
    AudioSource,
    ProvidersFailedError,
    ProviderTerms,
    ProviderUnavailableError,
)
from serve_app.domain.track_ids import AmbiguousTrackId, Platform, TrackId
from serve_app.providers.catalog.build import build_catalog, write_parquet
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.identities.audio_sources import CatalogAudio, locate_audio
from serve_app.providers.identities.memo import FOUND_TTL_S, MISSING_TTL_S, Memo
from serve_app.providers.identities.registry import Providers, build_providers
from serve_app.providers.identities.resolution import Resolution
from serve_app.providers.identities.resolver import Resolver
from tests.providers.identities.test_identity_providers import (
    Unlimited,
    clients_of,
    close,
    no_sleep,
    stub_settings,
)
from tests.providers.stub_server import (
    APPLE,
    ARTIST,
    DEEZER,
    ISRC,
    MBID,
    NUMBER,
    SPOTIFY,
    TITLE,
    YOUTUBE,
    Stub,
)

ALL_IDS = {
    "mbid": MBID,
    "isrc": ISRC,
    "spotify_id": SPOTIFY,
    "apple_id": APPLE,
    "deezer_id": DEEZER,
    "youtube_id": YOUTUBE,
}


class Memory:
    """A cache that forgets nothing."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}

    async def get(self, space: str, key: str) -> bytes | None:
        return self.values.get((space, key))

    async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
        self.values[space, key] = value


@pytest.fixture
async def providers(stub: Stub) -> AsyncIterator[Providers]:
    made = build_providers(stub_settings(stub), Unlimited())
    for client in clients_of(made):
        client._sleep = no_sleep
    yield made
    await close(made)


@pytest.fixture
def empty(tmp_path: Path) -> Catalog:
    return Catalog.open(tmp_path / "none")


def without(providers: Providers, *names: str) -> list[object]:
    return [one for one in providers.identities if one.name not in names]


def only(providers: Providers, *names: str) -> list[object]:
    return [one for one in providers.identities if one.name in names]


def resolver(catalog: Catalog, identities: Sequence[object], budget_s: float = 8.0) -> Resolver:
    return Resolver(catalog, identities, Memo(Memory()), budget_s)  # type: ignore[arg-type]


def ids_of(resolution: Resolution | None) -> dict[str, str | None]:
    assert resolution is not None
    return {name: getattr(resolution.identity, name) for name in ALL_IDS}


STARTS = [
    TrackId(Platform.MBID, MBID),
    TrackId(Platform.ISRC, ISRC),
    TrackId(Platform.SPOTIFY, SPOTIFY),
    TrackId(Platform.APPLE, APPLE, "gb"),
    TrackId(Platform.DEEZER, DEEZER),
    TrackId(Platform.YOUTUBE, YOUTUBE),
]


@pytest.mark.parametrize("start", STARTS, ids=str)
async def test_any_identifier_leads_to_all_others(
    stub: Stub, providers: Providers, empty: Catalog, start: TrackId
) -> None:
    resolution = await resolver(empty, providers.identities).resolve(start)
    assert ids_of(resolution) == ALL_IDS
    assert resolution is not None
    assert resolution.failures == {}
    assert len(stub.calls("musicbrainz")) <= 3


@pytest.mark.parametrize("start", STARTS, ids=str)
async def test_the_graph_is_found_without_musicbrainz_too(
    stub: Stub, providers: Providers, empty: Catalog, start: TrackId
) -> None:
    resolution = await resolver(empty, without(providers, "musicbrainz")).resolve(start)
    found = ids_of(resolution)
    if start.platform is not Platform.YOUTUBE:
        assert found.pop("youtube_id") is None
        assert found == {k: v for k, v in ALL_IDS.items() if k != "youtube_id"}
    else:
        assert found == ALL_IDS


async def test_identifier_then_name_then_what_the_name_brought_are_asked(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    asked: list[str] = []

    class Recorder(Memory):
        async def get(self, space: str, key: str) -> bytes | None:
            asked.append(key)
            return None

    chosen = only(providers, "deezer", "listenbrainz")
    recording = Resolver(empty, chosen, Memo(Recorder()))  # type: ignore[arg-type]
    assert await recording.resolve(TrackId(Platform.DEEZER, DEEZER)) is not None
    assert asked == [
        f"deezer:deezer:{DEEZER}:",
        "listenbrainz:name:stub quartet\x1fpaper lanterns:213",
        f"listenbrainz:mbid:{MBID}:",
    ]


async def test_a_track_in_the_catalog_costs_no_call(
    stub: Stub, providers: Providers, tmp_path: Path
) -> None:
    build_catalog([Path("serve_app/data/demo_catalog.parquet")], tmp_path)
    asked = resolver(Catalog.open(tmp_path), providers.identities)
    resolution = await asked.resolve(TrackId(Platform.SPOTIFY, SPOTIFY))
    assert ids_of(resolution) == ALL_IDS
    assert (await asked.search("stub quartet", "paper lanterns")) is not None
    assert stub.requests == []


async def test_a_catalog_row_without_names_is_completed_and_wins(
    stub: Stub, providers: Providers, tmp_path: Path
) -> None:
    row = TrackIdentity(mbid=MBID, tempo=99.0, duration_s=212.0, source="acousticbrainz")
    write_parquet([row], tmp_path / "in.parquet")
    build_catalog([tmp_path / "in.parquet"], tmp_path)
    asked = resolver(Catalog.open(tmp_path), only(providers, "musicbrainz"))
    resolution = await asked.resolve(TrackId(Platform.MBID, MBID))
    assert resolution is not None
    identity = resolution.identity
    assert (identity.title, identity.tempo, identity.duration_s) == (TITLE, 99.0, 212.0)


async def test_a_name_leads_to_all_identifiers(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    asked = resolver(empty, providers.identities)
    assert ids_of(await asked.search("the stub quartet", "Paper Lanterns (Remastered)")) == ALL_IDS
    assert await asked.search(ARTIST, "Paper Planes") is None


async def test_a_name_that_differs_by_version_or_length_adds_nothing(empty: Catalog) -> None:
    known = TrackIdentity(ARTIST, TITLE, isrc=ISRC, duration_s=213.0)
    resolution = Resolution(known)
    other = replace(known, deezer_id="5")
    for wrong in (
        replace(other, duration_s=240.0),
        replace(other, isrc="QZTST2199999"),
        replace(other, title=f"{TITLE} (Live)"),
    ):
        assert not resolution.add_named(wrong)
    assert resolution.identity == known
    assert resolution.add_named(replace(other, album="Another"))
    assert resolution.identity == replace(known, deezer_id="5", album="Another")


async def test_a_failing_provider_does_not_spoil_the_others(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    stub.faults.update({"itunes": "rate_limited", "deezer": "html", "listenbrainz": "down"})
    resolution = await resolver(empty, providers.identities).resolve(TrackId(Platform.ISRC, ISRC))
    assert ids_of(resolution) == ALL_IDS
    assert resolution is not None
    assert set(resolution.failures) == {"deezer", "itunes", "listenbrainz"}


async def test_nothing_found_while_one_failed_is_a_failure_and_not_remembered(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    asked = resolver(empty, only(providers, "deezer", "musicbrainz"))
    unknown = TrackId(Platform.DEEZER, "5")
    stub.faults["deezer"], stub.fault_lasts["deezer"] = "html", 3
    with pytest.raises(ProvidersFailedError, match="deezer"):
        await asked.resolve(unknown)
    assert await asked.resolve(unknown) is None
    assert len(stub.calls("deezer")) == 4
    assert len(stub.calls("musicbrainz")) == 1


async def test_a_slow_provider_ends_with_the_budget(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    stub.faults["deezer"] = "slow"
    chosen = only(providers, "deezer", "musicbrainz")
    with pytest.raises(ProvidersFailedError, match="no more time"):
        await resolver(empty, chosen, 0.3).resolve(TrackId(Platform.DEEZER, "5"))


async def test_answers_and_their_absence_are_remembered(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    asked = resolver(empty, providers.identities)
    for _ in range(3):
        assert ids_of(await asked.resolve(TrackId(Platform.ISRC, ISRC))) == ALL_IDS
        assert await asked.resolve(TrackId(Platform.DEEZER, "5")) is None
    n_calls = len(stub.requests)
    await asked.resolve(TrackId(Platform.ISRC, ISRC))
    assert len(stub.requests) == n_calls


async def test_callers_at_once_share_one_call(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    asked = resolver(empty, only(providers, "deezer"))
    start = TrackId(Platform.DEEZER, DEEZER)
    impatient = asyncio.create_task(asked.resolve(start))
    others = [asyncio.create_task(asked.resolve(start)) for _ in range(5)]
    await asyncio.sleep(0)
    impatient.cancel()
    answers = await asyncio.gather(*others)
    assert all(answer is not None for answer in answers)
    assert len(stub.requests) == 1


async def test_bare_digits_follow_the_one_platform_that_knows_them(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    asked = resolver(empty, providers.identities)
    assert ids_of(await asked.resolve(AmbiguousTrackId(DEEZER))) == ALL_IDS
    assert ids_of(await asked.resolve(AmbiguousTrackId(APPLE))) == ALL_IDS
    assert await asked.resolve(AmbiguousTrackId("77777")) is None


async def test_bare_digits_known_to_both_must_mean_one_recording(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    chosen = only(providers, "deezer", "itunes")
    with pytest.raises(AmbiguousIdError, match=f"apple:{NUMBER} or deezer:{NUMBER}"):
        await resolver(empty, chosen).resolve(AmbiguousTrackId(NUMBER))
    stub.twins_agree = True
    resolution = await resolver(empty, chosen).resolve(AmbiguousTrackId(NUMBER))
    assert resolution is not None
    assert (resolution.identity.apple_id, resolution.identity.deezer_id) == (NUMBER, NUMBER)


async def test_bare_digits_are_not_guessed_while_one_platform_fails(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    stub.faults["itunes"] = "rate_limited"
    with pytest.raises(ProvidersFailedError, match="itunes"):
        await resolver(empty, providers.identities).resolve(AmbiguousTrackId(DEEZER))


async def test_bare_digits_are_looked_up_in_the_catalog_first(
    stub: Stub, providers: Providers, tmp_path: Path
) -> None:
    build_catalog([Path("serve_app/data/demo_catalog.parquet")], tmp_path)
    asked = resolver(Catalog.open(tmp_path), providers.identities)
    assert ids_of(await asked.resolve(AmbiguousTrackId(DEEZER))) == ALL_IDS
    with pytest.raises(AmbiguousIdError):
        await asked.resolve(AmbiguousTrackId(NUMBER))
    assert stub.requests == []


async def test_without_providers_an_unknown_track_is_none(empty: Catalog) -> None:
    asked = resolver(empty, [])
    assert await asked.resolve(TrackId(Platform.ACOUSTID, MBID)) is None
    assert await asked.resolve(AmbiguousTrackId("77777")) is None
    assert await asked.search("a", "b") is None


async def test_no_preview_host_is_fetched_when_resolving(
    stub: Stub, providers: Providers, empty: Catalog
) -> None:
    await resolver(empty, providers.identities).resolve(TrackId(Platform.ISRC, ISRC))
    for request in stub.requests:
        assert "preview" not in str(request.url)


class Source:
    terms = ProviderTerms("", "")

    def __init__(self, name: str, answer: AudioLocation | Exception | None) -> None:
        self.name = name
        self.answer = answer

    async def locate(self, identity: TrackIdentity) -> AudioLocation | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_the_first_source_with_audio_wins() -> None:
    track = TrackIdentity(ARTIST, TITLE, audio_url="file:///a.mp3")
    second = AudioLocation("https://e.org/a.mp3", "second")
    broken = Source("broken", ProviderUnavailableError("broken", "too slow"))
    sources: list[AudioSource] = [CatalogAudio(), broken, Source("second", second)]
    assert await locate_audio(sources, track) == AudioLocation("file:///a.mp3", "catalog")
    bare = replace(track, audio_url=None)
    assert await locate_audio(sources, bare) == second
    assert await locate_audio([CatalogAudio(), Source("none", None)], bare) is None
    with pytest.raises(ProvidersFailedError, match="too slow"):
        await locate_audio([CatalogAudio(), broken], bare)


async def test_absence_is_remembered_shorter_than_presence() -> None:
    ttls: list[float] = []

    class Recorder(Memory):
        async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
            ttls.append(ttl_s)

    async def missing() -> None:
        return None

    async def found() -> TrackIdentity:
        return TrackIdentity(ARTIST, TITLE)

    memo = Memo(Recorder())
    await memo.remember("a", missing)
    await memo.remember("b", found)
    assert ttls == [MISSING_TTL_S, FOUND_TTL_S]


def test_an_identity_survives_json() -> None:
    track = TrackIdentity(ARTIST, "Ünï", mbid=MBID, genres=("a",), beats=(0.5, 1.0), year=2021)
    assert from_json(to_json(track)) == track
    assert from_json(to_json(TrackIdentity())) == TrackIdentity()
