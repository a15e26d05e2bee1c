import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from serve_app.domain.identification import (
    Recognition,
    ReleaseFacts,
    ReleaseIds,
    TempoAndKey,
)
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import (
    AmbiguousIdError,
    ProvidersFailedError,
    ProviderUnavailableError,
)
from serve_app.domain.track_ids import AmbiguousTrackId, Platform, TrackId
from serve_app.services.identify.enrichment import Enrichment, EnrichmentService

MBID = "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f"
NAMED = TrackIdentity(artist="A", title="T", source="audd")
KNOWN = TrackIdentity(
    artist="a", title="t", mbid=MBID, isrc="QZTST2100001", spotify_id="1StUbTrAcK0000000000Aa",
    apple_id="1", deezer_id="2", youtube_id="StubVideo0A", label="Hub Label", genres=("pop",),
    album="Album", year=2021,
)  # fmt: skip
FACTS = ReleaseFacts(label="Label", genres=("Electronic",), styles=("Chiptune", "Electro"))
COVER = "https://covers.test/front-500"


@dataclass
class Known:
    identity: TrackIdentity


@dataclass
class Sources:
    """Every source in one: what each knows, which are down, which hang."""

    identity: TrackIdentity | None = KNOWN
    by_name: TrackIdentity | None = KNOWN
    facts_known: ReleaseFacts | None = FACTS
    release: ReleaseIds | None = field(default_factory=lambda: ReleaseIds("r", "g"))
    cover: str | None = COVER
    measured: TempoAndKey | None = None
    down: set[str] = field(default_factory=set)
    hangs: set[str] = field(default_factory=set)
    calls: list[tuple[str, object]] = field(default_factory=list)

    async def _called(self, name: str, asked: object) -> None:
        self.calls.append((name, asked))
        if name in self.hangs:
            await asyncio.sleep(60)
        if name in self.down:
            raise ProviderUnavailableError(name, "down")

    async def resolve(self, track_id: TrackId) -> Known | None:
        await self._called("resolve", track_id)
        return Known(self.identity) if self.identity else None

    async def search(self, artist: str, title: str) -> Known | None:
        await self._called("search", (artist, title))
        return Known(self.by_name) if self.by_name else None

    async def facts(self, identity: TrackIdentity) -> ReleaseFacts | None:
        await self._called("facts", identity)
        return self.facts_known

    async def release_of(self, mbid: str) -> ReleaseIds | None:
        await self._called("release", mbid)
        return self.release

    async def front(self, release: ReleaseIds) -> str | None:
        await self._called("front", release)
        return self.cover

    async def cached(self, identity: TrackIdentity) -> TempoAndKey | None:
        await self._called("cached", identity)
        return self.measured

    def names(self) -> set[str]:
        return {name for name, _ in self.calls}


def service(sources: Sources, budget_s: float = 3.0) -> EnrichmentService:
    return EnrichmentService(sources, sources, sources, sources, sources.cached, budget_s)


def measures(value: TempoAndKey | None) -> Callable[[], Awaitable[TempoAndKey | None]]:
    async def measure() -> TempoAndKey | None:
        return value

    return measure


async def test_everything_together() -> None:
    sources = Sources()
    clip = measures(TempoAndKey(tempo=124.02, key=6, mode=0))
    enriched = await service(sources).enrich(Recognition(NAMED, 90), clip)
    assert enriched.enrichment == Enrichment(
        bpm=124.02,
        key="F#",
        camelot="11A",
        label="Label",
        genre=("Electronic",),
        styles=("Chiptune", "Electro"),
        spotify_id="1StUbTrAcK0000000000Aa",
        apple_id="1",
        deezer_id="2",
        youtube_id="StubVideo0A",
        artwork_url=COVER,
    )
    identity = enriched.identity
    assert (identity.artist, identity.title) == ("A", "T")  # what was recognised stays
    assert (identity.album, identity.year, identity.isrc) == ("Album", 2021, "QZTST2100001")
    assert ("release", MBID) in sources.calls
    assert ("front", ReleaseIds("r", "g")) in sources.calls


async def test_without_any_source_the_recognition_speaks() -> None:
    enriched = await EnrichmentService().enrich(Recognition(KNOWN, 90))
    assert enriched.identity == KNOWN
    assert enriched.enrichment.label == "Hub Label"
    assert enriched.enrichment.genre == ("pop",)
    assert enriched.enrichment.bpm is None
    assert enriched.enrichment.failures == {}


async def test_the_best_identifier_is_asked_for_then_the_name() -> None:
    sources = Sources()
    await service(sources).enrich(Recognition(KNOWN, 90))
    assert [call for call in sources.calls if call[0] in ("resolve", "search")] == [
        ("resolve", TrackId(Platform.MBID, MBID))
    ]
    sources = Sources(identity=None)
    await service(sources).enrich(Recognition(KNOWN, 90))
    assert {"resolve", "search"} <= sources.names()
    sources = Sources()
    await service(sources).enrich(Recognition(NAMED, 90))
    assert ("search", ("A", "T")) in sources.calls
    sources = Sources()
    await service(sources).enrich(Recognition(TrackIdentity(title="bare"), 90))
    assert "search" not in sources.names()


async def test_a_services_own_release_and_artwork_spare_calls() -> None:
    own = ReleaseIds(group_id="own")
    sources = Sources()
    await service(sources).enrich(Recognition(NAMED, 90, own))
    assert ("front", own) in sources.calls
    assert "release" not in sources.names()
    pictured = TrackIdentity(artist="A", title="T", artwork_url="https://img.test/1.jpg")
    sources = Sources()
    enriched = await service(sources).enrich(Recognition(pictured, 90))
    assert enriched.enrichment.artwork_url == "https://img.test/1.jpg"
    assert not {"front", "release"} & sources.names()


@pytest.mark.parametrize(
    ("down", "lost"),
    [
        ("search", {"spotify_id", "apple_id", "deezer_id", "youtube_id", "artwork_url"}),
        ("facts", {"styles"}),
        ("release", {"artwork_url"}),
        ("front", {"artwork_url"}),
        ("cached", set()),
    ],
)
@pytest.mark.parametrize("how", ["down", "hangs"])
async def test_a_lost_source_loses_only_its_own_fields(down: str, lost: set[str], how: str) -> None:
    sources = Sources(**{how: {down}})
    start = time.monotonic()
    clip = measures(TempoAndKey(100.0, 0, 1))
    enriched = await service(sources, 1.0).enrich(Recognition(NAMED, 90), clip)
    assert time.monotonic() - start < 15
    found = enriched.enrichment
    if how == "hangs" and down == "cached":
        lost = {"bpm", "key", "camelot"}
    for name in Enrichment.__dataclass_fields__.keys() - {"failures", "label", "genre"}:
        assert bool(getattr(found, name)) == (name not in lost), name
    assert len(found.failures) == 1
    assert found.label == ("Hub Label" if down == "facts" else "Label")


async def test_everything_down_is_still_an_answer() -> None:
    names = {"resolve", "search", "facts", "release", "front", "cached"}

    async def broken() -> TempoAndKey | None:
        raise ProviderUnavailableError("analysis", "overloaded")

    enriched = await service(Sources(down=names)).enrich(Recognition(KNOWN, 90), broken)
    assert enriched.identity == KNOWN
    assert enriched.enrichment.label == "Hub Label"
    assert enriched.enrichment.bpm is None
    assert set(enriched.enrichment.failures) >= {"identity", "discography", "analysis"}


async def test_the_hubs_own_failures_are_noted() -> None:
    class Failing(Sources):
        async def resolve(self, track_id: TrackId) -> Known | None:
            raise ProvidersFailedError({"deezer": "too slow"})

        async def search(self, artist: str, title: str) -> Known | None:
            number = AmbiguousTrackId("3135556")
            raise AmbiguousIdError(number)

    enriched = await service(Failing()).enrich(Recognition(KNOWN, 90))
    assert enriched.enrichment.failures["deezer"] == "too slow"
    enriched = await service(Failing()).enrich(Recognition(NAMED, 90))
    assert "identity" in enriched.enrichment.failures


async def test_no_time_left_gives_what_is_known() -> None:
    start = time.monotonic()
    enriched = await service(Sources(hangs={"search", "facts", "cached"})).enrich(
        Recognition(NAMED, 90), measures(TempoAndKey(1, 1, 1)), left_s=-1.0
    )
    assert time.monotonic() - start < 15
    assert enriched.identity == NAMED
    assert set(enriched.enrichment.failures) == {"identity", "discography", "analysis"}


@pytest.mark.parametrize(
    ("catalog", "cached", "expected", "is_measured"),
    [
        # (catalog tempo, verified), cached tempo → tempo, whether the clip is measured
        ((None, False), None, 90.0, True),
        ((120.0, False), None, 120.0, False),
        ((120.0, False), 121.0, 121.0, False),
        ((120.0, True), 121.0, 120.0, False),
        ((None, False), 121.0, 121.0, False),
        ((None, False), 100.03847704489141, 100.038, False),
    ],
)
async def test_the_best_tempo_and_key_win(
    catalog: tuple[float | None, bool], cached: float | None, expected: float, is_measured: bool
) -> None:
    tempo, is_verified = catalog
    identity = TrackIdentity(
        artist="A", title="T", tempo=tempo, key=9 if tempo else None, mode=0 if tempo else None,
        is_verified=is_verified,
    )  # fmt: skip
    asked: list[bool] = []

    async def measure() -> TempoAndKey | None:
        asked.append(True)
        return TempoAndKey(90.0, 9, 0)

    sources = Sources(
        identity=None, by_name=None, measured=TempoAndKey(cached, 9, 0) if cached else None
    )
    enriched = await service(sources).enrich(Recognition(identity, 90), measure)
    assert enriched.enrichment.bpm == expected
    assert (enriched.enrichment.key, enriched.enrichment.camelot) == ("A", "8A")
    assert bool(asked) == is_measured


async def test_silence_has_no_tempo_and_no_key() -> None:
    clip = measures(TempoAndKey(0.0, -1, -1))
    found = (await EnrichmentService().enrich(Recognition(NAMED, 90), clip)).enrichment
    assert (found.bpm, found.key, found.camelot) == (None, None, None)


async def test_a_fault_of_ours_is_not_hidden() -> None:
    async def broken() -> TempoAndKey | None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await EnrichmentService().enrich(Recognition(NAMED, 90), broken)
