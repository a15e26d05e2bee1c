"""Providers and recognisers that other packages provide as entry points."""

import sys
from pathlib import Path

import numpy as np
import pytest

from configs.settings import Settings
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.cli.status import providers_table
from serve_app.composition.options import TrackOptions
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.providers.identities.registry import build_providers
from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.own_index import LocalRecogniser
from serve_app.providers.recognisers.registry import ORDER, build_sources
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.services.identify.cascade import IdentifyCascade

MODULE = """
from serve_app.domain.identification import Recognition
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import AudioLocation, ProviderTerms
from serve_app.domain.track_ids import Platform

class Shop:
    name = "shop"
    terms = ProviderTerms("shop_url", "our own shop")
    platforms = (Platform.ISRC,)
    can_search = False
    def __init__(self, settings, limiter):
        self.url = settings["url"]
        self.limiter = limiter
    async def by_id(self, track_id):
        return TrackIdentity(artist="The Band", title=self.url, isrc=track_id.value)
    async def search(self, artist, title, duration_s=None):
        return []

class Shelf:
    name = "shelf"
    terms = ProviderTerms("shelf_on", "our own files")
    def __init__(self, settings, limiter):
        pass
    async def locate(self, identity):
        return AudioLocation("file:///shelf/a.flac", "shelf")

class Ear:
    name = "ear"
    terms = ProviderTerms("ear_on", "a good one")
    timeout_s = 1.0
    def __init__(self, settings, limiter, cap):
        self.settings = settings
    def accepts(self, clip):
        return True
    async def recognise(self, clip):
        return Recognition(TrackIdentity(artist="The Band", title="Heard"), 90)
"""
ENTRY_POINTS = """
[afa.providers]
shop = shop_for_afa:Shop
shelf = shop_for_afa:Shelf

[afa.recognisers]
ear = shop_for_afa:Ear
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is installed next to afa."""
    (tmp_path / "shop_for_afa.py").write_text(MODULE)
    about = tmp_path / "shop_for_afa-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-for-afa\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_for_afa", raising=False)
    return about


def options(**settings: dict[str, str | bool]) -> TrackOptions:
    return TrackOptions(
        catalog_dir=Path(),
        fingerprint_dir=Path(),
        **settings,  # type: ignore[arg-type]
    )


async def test_a_provider_is_on_once_a_setting_of_it_is_there() -> None:
    given: dict[str, str | bool] = {"shop_url": "http://shop", "deezer_enabled": True}
    settings = options(providers=given).provider_settings()
    providers = build_providers(settings, LocalRateLimiter())
    assert [one.name for one in providers.identities] == ["deezer", "shop"]
    assert [one.name for one in providers.audio] == ["catalog"]
    found = await providers.identities[1].by_id(TrackId(Platform.ISRC, "QZAFA2600001"))
    assert found == TrackIdentity(artist="The Band", title="http://shop", isrc="QZAFA2600001")
    statuses = {one.name: one.is_on for one in providers.statuses}
    assert (statuses["shop"], statuses["shelf"], statuses["itunes"]) == (True, False, False)


async def test_a_source_of_audio_is_told_from_one_of_identities() -> None:
    settings = options(providers={"shelf_on": True}).provider_settings()
    providers = build_providers(settings, LocalRateLimiter())
    assert [one.name for one in providers.audio] == ["catalog", "shelf"]
    assert providers.identities == []


async def test_a_recogniser_is_asked_last_and_named_while_it_is_off() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (1, 44_100 * 5)).astype(np.float32)
    clip = Fingerprinter().make_clip(Waveform(noise))
    for given, tried in (({"ear_on": True}, "match"), ({}, "skipped")):
        settings = options(recognisers=given).recogniser_settings()  # type: ignore[arg-type]
        local = LocalRecogniser(Path("/nowhere"), lambda _: None)
        sources = build_sources(settings, LocalRateLimiter(), MonthlyCap(0), local)
        assert sources.order == (*ORDER, "ear")
        outcome = await IdentifyCascade(sources.recognisers, sources.order).identify(clip)
        assert list(outcome.services_tried)[-1] == "ear"
        assert outcome.services_tried["ear"] == tried
        assert outcome.matched == bool(given)


def test_the_status_shows_them() -> None:
    table = providers_table(Settings(providers={"shop_url": "http://shop"}))
    names, on, by = (list(column.cells) for column in table.columns)
    rows = dict(zip(names, zip(on, by, strict=True), strict=True))
    assert rows["shop"] == ("yes", "shop_url")
    assert rows["shelf"] == ("", "shelf_on")
    assert rows["identify: ear"] == ("", "")


def test_what_cannot_be_made_is_named(package: Path) -> None:
    settings = options(providers={"shop_uri": "http://shop"}).provider_settings()
    with pytest.raises(ValueError, match="shop: KeyError: 'url'"):
        build_providers(settings, LocalRateLimiter())
    with pytest.raises(ValueError, match=r"AFA_PROVIDERS has no setting 'shopping_url', but con"):
        options(providers={"shopping_url": "x"}).provider_settings()
    (package / "entry_points.txt").write_text("[afa.providers]\nshop = shop_for_afa:Nobody\n")
    with pytest.raises(ValueError, match=r"afa\.providers: shop cannot be imported"):
        options(providers={}).provider_settings()


def test_credentials_of_others_are_not_shown() -> None:
    settings = options(providers={"shop_url": "secret"}).provider_settings()
    assert "secret" not in repr(settings) + repr(settings.others)
