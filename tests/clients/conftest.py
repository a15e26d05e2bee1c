"""The application behind real HTTP, with a fingerprint index that knows the demo track."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.audio.decode import DecodeLimits, decode
from pipelines.fingerprint.make import Fingerprinter
from serve_app.composition.options import StoreOptions
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.track_keys import identity_of_key
from serve_app.providers.recognisers.own_index import LocalRecogniser
from tests.api.live import LiveApplication, serve_application
from tests.conftest import DEMO_TRACK


@pytest.fixture(scope="module")
def live(
    api_stores: StoreOptions, demo_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveApplication]:
    index = tmp_path_factory.mktemp("index")
    waveform = decode(DEMO_TRACK, DecodeLimits())
    with FingerprintIndexBuilder(index) as builder:
        fingerprint = Fingerprinter().make_fingerprints([waveform])[0]
        builder.build([("file:The Stub Quartet - Demo.mp3", fingerprint)])
    catalog = Catalog.open(demo_catalog)
    local = LocalRecogniser(index, lambda key: identity_of_key(catalog, key))
    with serve_application(
        api_stores, demo_catalog, recognisers=[local], fingerprint_dir=index
    ) as live:
        yield live
