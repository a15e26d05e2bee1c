"""Builds the API's services on the stores; without Ray, so that tests can do the same."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from afa.cards import usable_cards
from serve_app.api.services import ApiServices, Operations
from serve_app.checkpoints.choice import models_name
from serve_app.checkpoints.named import NamedModels
from serve_app.checkpoints.watch import ChoiceWatch
from serve_app.composition.options import ModelOptions, TrackOptions, UrlOptions
from serve_app.composition.stores import Stores
from serve_app.ledger.jobs.types import Source
from serve_app.library.library import Library
from serve_app.library.writer import LibraryWriter
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.manifest import generation_of
from serve_app.providers.identities.memo import Memo
from serve_app.providers.identities.registry import build_providers
from serve_app.providers.identities.resolver import Resolver
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.providers.web.http_client import LocalRateLimiter
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.sources import TrackAudio
from serve_app.services.bpm import BpmService, QuickBackend
from serve_app.services.charging import Charging
from serve_app.services.embedding import EmbedBackend, EmbedService
from serve_app.services.export.export import ExportService
from serve_app.services.gate import BodyPlaces
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.identify import IdentifyBackend, IdentifyService
from serve_app.services.jobs.submit import AnalysisService, UploadSource
from serve_app.services.library import Adding, LibraryService
from serve_app.services.lookup.batch import BatchService
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.services.lookup.find import Finder
from serve_app.services.lookup.library_features import LibraryFeatures
from serve_app.services.lookup.lookup import LookupService
from serve_app.services.lookup.track_jobs import DEFAULT_WAIT_S, TrackJobs
from serve_app.services.readiness import Readiness
from serve_app.services.similar.neighbours import LibraryNeighbours
from serve_app.services.similar.similar import SimilarService
from serve_app.services.similar.words import TextBackend, Words
from serve_app.services.simulation.backends import (
    SimulatedAudio,
    SimulatedEmbed,
    SimulatedIdentify,
    SimulatedQuick,
    SimulatedTracks,
    simulated_source,
)
from serve_app.services.simulation.neighbours import SimulatedNeighbours, SimulatedWords
from serve_app.services.simulation.resolver import SimulatedResolver
from serve_app.store.cache import Cache
from serve_app.store.spend import SharedRateLimiter


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the API uses besides the stores.

    Attributes:
        quick: The CPU deployment for tempo and key.
        identify: The CPU deployment that recognises recordings.
        embed: The workers, for requests of only an embedding.
        texts: The embedding deployment, for texts.
        options: The available embeddings, and which may be named.
        models: Role to ids of the checkpoints that are used if none are chosen.
        library: The tracks that this server knows.
        probes: Parts that `/readyz` checks.
        watch: Knows the chosen checkpoints; without it they are ``models``.
        library_adding: Who may add tracks: ``accounts``, or only the ``operator``.
        lookup_wait_s: How long a look-up waits for its job.
    """

    public_url: str
    urls: UrlOptions
    tracks: TrackOptions
    quick: QuickBackend
    identify: IdentifyBackend
    embed: EmbedBackend
    texts: TextBackend
    options: ModelOptions
    models: Mapping[str, str]
    library: Library
    probes: Mapping[str, Callable[[], Awaitable[object]]]
    watch: ChoiceWatch | None = None
    library_adding: Adding = "accounts"
    lookup_wait_s: float = DEFAULT_WAIT_S


def _feature_cache(
    cache: Cache, around: Surroundings, *, is_per_owner: bool = False
) -> FeatureCache:
    if around.watch is None:
        name = models_name(around.models)
        return FeatureCache(cache, lambda: name, is_per_owner=is_per_owner)
    watch = around.watch
    return FeatureCache(cache, watch.name, watch.is_settled, is_per_owner=is_per_owner)


def _named_models(around: Surroundings) -> NamedModels:
    options = around.options
    return NamedModels(
        partial(usable_cards, options.model_dir),
        around.watch.models if around.watch else lambda: around.models,
        options.model_dir,
        options.licences,
        options.named_mib << 20,
    )


@dataclass(frozen=True, slots=True)
class Backing:
    """The parts that the operations use; for test keys all of them are simulated."""

    resolver: Resolver | SimulatedResolver
    audio: TrackAudio | SimulatedAudio
    tracks: TrackJobs | SimulatedTracks
    quick: QuickBackend
    identify: IdentifyBackend
    embed: EmbedBackend
    words: Words | SimulatedWords
    answers: IdentifyCache | None
    source_of: Callable[[UploadSource], Source]
    library: LibraryFeatures | None
    neighbours: LibraryNeighbours | SimulatedNeighbours


def live_backing(
    stores: Stores,
    around: Surroundings,
    features: FeatureCache,
    assets: AssetsService,
    models: NamedModels,
) -> Backing:
    """Return the real parts: catalog, providers, jobs and deployments."""
    providers = build_providers(
        around.tracks.provider_settings(),
        SharedRateLimiter(stores.cache_store, LocalRateLimiter()),
    )
    catalog = Catalog.open(around.tracks.catalog_dir)
    return Backing(
        resolver=Resolver(
            catalog, providers.identities, Memo(stores.cache), library=around.library
        ),
        audio=TrackAudio(assets, providers.audio, around.library),
        tracks=TrackJobs(stores.jobs, features, stores.cache, around.lookup_wait_s),
        quick=around.quick,
        identify=around.identify,
        embed=around.embed,
        words=Words(models, around.texts),
        answers=IdentifyCache(stores.cache, partial(generation_of, around.tracks.fingerprint_dir)),
        source_of=lambda source: source,
        library=LibraryFeatures(around.library, features.models),
        neighbours=LibraryNeighbours(around.library),
    )


def simulated_backing(features: FeatureCache) -> Backing:
    """Return the simulated parts, for test keys."""
    return Backing(
        resolver=SimulatedResolver(),
        audio=SimulatedAudio(),
        tracks=SimulatedTracks(features),
        quick=SimulatedQuick(),
        identify=SimulatedIdentify(),
        embed=SimulatedEmbed(),
        words=SimulatedWords(),
        answers=None,
        source_of=simulated_source,
        library=None,
        neighbours=SimulatedNeighbours(),
    )


def operations(
    stores: Stores,
    features: FeatureCache,
    backing: Backing,
    assets: AssetsService,
    *,
    batch_cached_free: bool,
) -> Operations:
    """Make the operations that use these parts."""
    charging = Charging(stores.ledger)
    lookup = LookupService(
        resolver=backing.resolver,
        finder=Finder(features, backing.audio, backing.library),
        cache=features,
        tracks=backing.tracks,
        quick=backing.quick,
        ledger=stores.ledger,
        charging=charging,
        tiers=stores.tiers,
        prices=stores.prices,
    )
    analysis = AnalysisService(stores.jobs, stores.objects, stores.prices, backing.source_of)
    return Operations(
        analysis=analysis,
        bpm=BpmService(backing.quick, charging, stores.prices),
        identify=IdentifyService(
            backing.identify,
            backing.answers,
            stores.limits,
            stores.ledger,
            charging,
            stores.prices,
        ),
        lookup=lookup,
        batch=BatchService(lookup, stores.ledger, charging, cached_free=batch_cached_free),
        embedding=EmbedService(backing.embed, charging, stores.prices),
        similar=SimilarService(
            backing.neighbours,
            backing.words,
            lookup,
            assets,
            analysis,
            charging,
            stores.prices,
        ),
    )


def compose_services(stores: Stores, around: Surroundings) -> ApiServices:
    """Make the services that the routes call."""
    features = _feature_cache(stores.cache, around)
    assets = AssetsService(stores.assets, stores.objects)
    cached_free = around.tracks.batch_cached_free
    models = _named_models(around)
    live = live_backing(stores, around, features, assets, models)
    library = LibraryService(
        around.library, LibraryWriter(around.library), live.resolver, around.library_adding
    )
    test_features = _feature_cache(stores.cache, around, is_per_owner=True)
    simulated = simulated_backing(test_features)
    return ApiServices(
        tiers=stores.tiers,
        prices=stores.prices,
        public_url=around.public_url.rstrip("/"),
        url_guard=around.urls.guard(),
        audio_urls=AudioUrlFetcher(around.urls.guard()),
        accounts=stores.accounts,
        ledger=stores.ledger,
        topups=stores.topups,
        jobs=stores.jobs,
        limits=stores.limits,
        idempotency=stores.idempotency,
        webhooks=stores.webhooks,
        objects=stores.objects,
        assets=assets,
        library=library,
        export=ExportService(library),
        models=models,
        bodies=BodyPlaces(),
        live=operations(stores, features, live, assets, batch_cached_free=cached_free),
        simulated=operations(
            stores, test_features, simulated, assets, batch_cached_free=cached_free
        ),
        readiness=Readiness(
            {"ledger": stores.ledger_store.try_write, "objects": stores.objects.ping}
            | dict(around.probes)
        ),
    )
