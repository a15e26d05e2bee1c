"""Filled stores for benchmarks: a catalog with every track cached, and keys for requests."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.harness.api import MODELS
from benchmarks.harness.synthetic_tracks import write_synthetic
from serve_app.checkpoints.choice import models_name
from serve_app.composition.options import StoreOptions
from serve_app.composition.stores import Stores, open_stores
from serve_app.domain.keys import Caller
from serve_app.domain.track_ids import Platform, TrackId
from serve_app.local import embedded_redis
from serve_app.providers.catalog.build import build_catalog
from serve_app.providers.catalog.search import Catalog
from serve_app.services.lookup.feature_cache import FeatureCache, track_key
from serve_app.services.simulation.features import simulated_features

N_TRACKS = 1000
N_KEYS = 64


@dataclass(frozen=True, slots=True)
class Scene:
    """The tracks that requests ask for, and the keys that they use.

    Attributes:
        ids: Spotify ids of all tracks.
        keys: API keys of the scale tier, each from its own account.
    """

    stores: StoreOptions
    catalog_dir: Path
    ids: list[str]
    keys: list[str]


@contextmanager
def open_scene(n_tracks: int = N_TRACKS) -> Iterator[Scene]:
    """Start the stores and fill them."""
    with tempfile.TemporaryDirectory(prefix="afa-bench-") as name:
        folder = Path(name)
        servers = [embedded_redis.start(folder, role=role) for role in ("ledger", "cache")]
        try:
            yield asyncio.run(fill(folder, n_tracks, *(server.url for server in servers)))
        finally:
            for server in servers:
                server.stop()


async def fill(folder: Path, n_tracks: int, ledger_url: str, cache_url: str) -> Scene:
    """Make the catalog, cache the features of its tracks and issue the keys."""
    parquet, catalog_dir = folder / "tracks.parquet", folder / "catalog"
    write_synthetic(parquet, n_tracks)
    build_catalog([parquet], catalog_dir)
    options = StoreOptions(
        ledger_url=ledger_url,
        cache_url=cache_url,
        object_store=(folder / "objects").as_uri(),
        key_pepper="benchmark",
    )
    stores = open_stores(options, in_background=True)
    try:
        ids = pq.read_table(parquet, columns=["spotify_id"])["spotify_id"].to_pylist()
        await cache_features(stores, Catalog.open(catalog_dir), ids)
        keys = [
            (await stores.accounts.issue(f"bench-{number}", "scale")).key
            for number in range(N_KEYS)
        ]
    finally:
        await stores.close()
    return Scene(options, catalog_dir, ids, keys)


async def cache_features(stores: Stores, catalog: Catalog, ids: list[str]) -> None:
    """Put the features of every track into the cache."""
    cache = FeatureCache(stores.cache, lambda: models_name(MODELS))
    caller = Caller("", "", "", "scale", frozenset(), is_test=False)
    for one in ids:
        identity = catalog.by_id(TrackId(Platform.SPOTIFY, one))
        if identity is None:
            raise RuntimeError(f"track {one} is not in the catalog")
        await cache.put(cache.key(caller, track_key(identity)), simulated_features(one))
