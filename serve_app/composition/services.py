"""Put the API's services together from the stores; without Ray, so that tests do the same."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from serve_app.api.services import ApiServices
from serve_app.checkpoints.choice import models_name
from serve_app.composition.options import TrackOptions, UrlOptions
from serve_app.composition.stores import Stores
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.identities.memo import Memo
from serve_app.providers.identities.registry import build_providers
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.sources import TrackAudio
from serve_app.services.bpm import BpmService, QuickBackend
from serve_app.services.charging import Charging
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.identify import IdentifyBackend, IdentifyService
from serve_app.services.jobs.submit import AnalysisService
from serve_app.services.lookup.batch import BatchService
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.services.lookup.find import LookupService
from serve_app.services.lookup.identities import ResolvedIdentities
from serve_app.services.lookup.track_jobs import DEFAULT_WAIT_S, TrackJobs
from serve_app.services.readiness import Readiness
from serve_app.store.cache import Cache
from serve_app.store.spend import SharedRateLimiter

PROVIDER_SPACE = "provider"


class ProviderCache:
    """The cache role as providers see it."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def get(self, key: str) -> bytes | None:
        """See `LookupCache`."""
        return await self._cache.get(PROVIDER_SPACE, key)

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """See `LookupCache`."""
        await self._cache.put(PROVIDER_SPACE, key, value, ttl_s)


class ModelsInUse(Protocol):
    """Which checkpoints answer now; see `ChoiceWatch`."""

    def name(self) -> str:
        """Give their short name."""
        ...

    def is_settled(self) -> bool:
        """Tell whether every replica surely answers with them."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the API reaches beside the stores.

    Attributes:
        quick: The CPU deployment for tempo and key.
        identify: The CPU deployment that recognises recordings.
        models: Role to ids of the checkpoints in use where nothing is chosen.
        probes: Parts that `/readyz` asks.
        watch: Knows what is chosen; without it, ``models`` it is.
        lookup_wait_s: How long a look-up waits for its job.
    """

    public_url: str
    urls: UrlOptions
    tracks: TrackOptions
    quick: QuickBackend
    identify: IdentifyBackend
    models: Mapping[str, str]
    probes: Mapping[str, Callable[[], Awaitable[object]]]
    watch: ModelsInUse | None = None
    lookup_wait_s: float = DEFAULT_WAIT_S


def _feature_cache(cache: Cache, around: Surroundings) -> FeatureCache:
    if around.watch is not None:
        return FeatureCache(cache, around.watch.name, around.watch.is_settled)
    name = models_name(around.models)
    return FeatureCache(cache, lambda: name)


def compose_services(stores: Stores, around: Surroundings) -> ApiServices:
    """Make the services that the routes call."""
    guard = UrlGuard(ports=around.urls.ports, networks=around.urls.networks)
    providers = build_providers(
        around.tracks.provider_settings(),
        SharedRateLimiter(stores.cache_store, LocalRateLimiter()),
    )
    catalog = Catalog.open(around.tracks.catalog_dir)
    features = _feature_cache(stores.cache, around)
    charging = Charging(stores.ledger)
    assets = AssetsService(stores.assets, stores.objects)
    lookup = LookupService(
        identities=ResolvedIdentities(
            Resolver(catalog, providers.identities, Memo(ProviderCache(stores.cache)))
        ),
        audio=TrackAudio(providers.audio),
        cache=features,
        jobs=TrackJobs(stores.jobs, features, stores.cache, around.lookup_wait_s),
        quick=around.quick,
        assets=assets,
        ledger=stores.ledger,
        charging=charging,
        tiers=stores.tiers,
    )
    return ApiServices(
        tiers=stores.tiers,
        prices=stores.prices,
        public_url=around.public_url.rstrip("/"),
        url_guard=guard,
        accounts=stores.accounts,
        ledger=stores.ledger,
        topups=stores.topups,
        jobs=stores.jobs,
        limits=stores.limits,
        idempotency=stores.idempotency,
        webhooks=stores.webhooks,
        analysis=AnalysisService(stores.jobs, stores.objects, assets, guard, stores.prices),
        assets=assets,
        bpm=BpmService(stores.objects, assets, around.quick, charging, stores.prices),
        lookup=lookup,
        identify=IdentifyService(
            stores.objects,
            assets,
            around.identify,
            IdentifyCache(ProviderCache(stores.cache)),
            stores.limits,
            stores.ledger,
            charging,
            stores.prices,
        ),
        batch=BatchService(
            lookup, stores.ledger, charging, cached_free=around.tracks.batch_cached_free
        ),
        readiness=Readiness({"ledger": stores.ping_ledger} | dict(around.probes)),
    )
