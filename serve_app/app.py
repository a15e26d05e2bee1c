"""Builds the Serve application: the only place that binds deployments together."""

from collections.abc import Mapping
from typing import Any, cast

from ray.serve import Application, Deployment

from configs.settings import Settings
from pipelines.analysis.excerpt import Excerpt
from serve_app.checkpoints.exchange import ids_by_role
from serve_app.composition.files import LocalFiles, require_shared
from serve_app.composition.model_args import ModelArgs
from serve_app.composition.options import (
    BrowserOptions,
    KeeperOptions,
    LibraryOptions,
    StoreOptions,
    TrackOptions,
    UrlOptions,
)
from serve_app.composition.profile import AppArgs
from serve_app.deployments.api import Api
from serve_app.deployments.bpm import Bpm
from serve_app.deployments.identify import Identify
from serve_app.deployments.keeper import Keeper
from serve_app.deployments.models import Embedding, Mood, MoodAndEmbedding, Spectral
from serve_app.deployments.worker import AnalysisWorker


def build_app(args: AppArgs) -> Application:
    """Build the application of a cluster; ``serve deploy`` calls this.

    Raises:
        NotSharedError: Something that must last, the pepper too, would lie on the disk of one node.
    """
    require_shared(Settings())
    return bind(args, {})


def bind(args: AppArgs, overrides: Mapping[str, Mapping[str, Any]]) -> Application:
    """Bind all deployments.

    Args:
        args: Batching and concurrency.
        overrides: Deployment name to Serve options, as ``serve deploy`` would apply them.
    """
    settings = Settings()
    files = LocalFiles(settings.data_dir)
    stores = StoreOptions(
        ledger_url=files.ledger_url(settings),
        cache_url=files.cache_url(settings),
        object_store=files.object_store_url(settings),
        key_pepper=files.key_pepper(settings),
        ledger_shards=settings.ledger_shards,
        over_allowance=settings.over_allowance,
        topup_replicas=settings.topup_replicas,
        jobs=args.jobs,
    )
    urls = UrlOptions.of(settings)

    published = files.checkpoints_url(settings)

    def configured(cls: type) -> Deployment:
        deployment = cast("Deployment", cls)  # what the decorator really returns
        return deployment.options(**overrides.get(deployment.name, {}))

    def network(cls: type, model: ModelArgs) -> Application:
        options = args.model_options(model, settings, published)
        return configured(cls).bind(options=options, stores=stores)

    spectral = network(Spectral, args.spectral)
    embedding = None
    if args.shared_trunk:
        mood = network(MoodAndEmbedding, args.embedding)
    else:
        mood = network(Mood, args.mood)
        embedding = network(Embedding, args.embedding)
    library = LibraryOptions(
        url=files.library_url(settings),
        view_dir=files.library_view_dir.absolute(),
        adding=settings.library_adding,
    )
    worker = configured(AnalysisWorker).bind(
        stores=stores,
        urls=urls,
        options=args.worker,
        library=library,
        spectral=spectral,
        mood=mood,
        embedding=embedding,
    )
    quick = args.model_options(ModelArgs(), settings, published)
    bpm = configured(Bpm).bind(options=quick, stores=stores, urls=urls)
    tracks = TrackOptions(
        catalog_dir=files.served(settings).catalog_dir,
        fingerprint_dir=files.served(settings).fingerprint_dir,
        published=files.published_url(settings),
        batch_cached_free=settings.batch_cached_free,
        providers=settings.providers,
        recognisers=settings.recognisers,
    )
    identify = configured(Identify).bind(
        options=quick, stores=stores, tracks=tracks, library=library
    )
    keeper = configured(Keeper).bind(
        stores=stores,
        urls=urls,
        options=KeeperOptions(
            payments=files.payments_url(settings),
            journal_store=files.journal_store_url(settings),
        ),
        library=library,
        tracks=tracks,
    )
    handles = {
        "worker": worker,
        "keeper": keeper,
        "spectral": spectral,
        "mood": mood,
        "embedding": embedding or mood,
        "bpm": bpm,
        "identify": identify,
    }
    models = ids_by_role(quick.cards())
    if args.worker.analysis == "partial":  # what was made so is cached apart
        models |= Excerpt().named()
    return configured(Api).bind(
        stores=stores,
        urls=urls,
        tracks=tracks,
        library=library,
        browsers=BrowserOptions(cors_origins=settings.cors_origins, playground=settings.playground),
        public_url=settings.public_url,
        models=args.model_options(args.embedding, settings, published),
        default_models=models,
        handles=handles,
    )
