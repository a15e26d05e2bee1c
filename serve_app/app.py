"""Builds the Serve application: the only place that binds deployments together."""

from collections.abc import Mapping
from typing import Any, cast

from ray.serve import Application, Deployment

from configs.settings import Settings
from pipelines.analysis.excerpt import Excerpt
from serve_app.checkpoints.exchange import ids_by_role
from serve_app.composition.files import LocalFiles
from serve_app.composition.options import KeeperOptions, StoreOptions, TrackOptions, UrlOptions
from serve_app.composition.profile import AppArgs, ModelArgs
from serve_app.deployments.api import Api
from serve_app.deployments.bpm import Bpm
from serve_app.deployments.embedding import Embedding
from serve_app.deployments.identify import Identify
from serve_app.deployments.keeper import Keeper
from serve_app.deployments.mood import Mood
from serve_app.deployments.mood_and_embedding import MoodAndEmbedding
from serve_app.deployments.spectral import Spectral
from serve_app.deployments.worker import AnalysisWorker


def build_app(args: AppArgs) -> Application:
    """Build the application; ``serve deploy`` calls this."""
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
    urls = UrlOptions(ports=settings.url_ports, networks=settings.url_networks)

    def configured(cls: type) -> Deployment:
        deployment = cast("Deployment", cls)  # what the decorator really returns
        return deployment.options(**overrides.get(deployment.name, {}))

    embedding_options = args.model_options(args.embedding, settings)
    spectral = configured(Spectral).bind(args.model_options(args.spectral, settings), stores)
    embedding = None
    if args.shared_trunk:
        mood = configured(MoodAndEmbedding).bind(embedding_options, stores)
    else:
        mood = configured(Mood).bind(args.model_options(args.mood, settings), stores)
        embedding = configured(Embedding).bind(embedding_options, stores)
    worker = configured(AnalysisWorker).bind(stores, urls, args.worker, spectral, mood, embedding)
    quick = args.model_options(ModelArgs(), settings)
    bpm = configured(Bpm).bind(stores, urls, quick)
    tracks = TrackOptions(
        catalog_dir=files.catalog_dir,
        fingerprint_dir=files.fingerprint_dir,
        batch_cached_free=settings.batch_cached_free,
        providers=settings.providers,
        recognisers=settings.recognisers,
    )
    identify = configured(Identify).bind(stores, tracks, quick)
    keeper = configured(Keeper).bind(
        stores,
        urls,
        KeeperOptions(
            payments_file=settings.data_dir / "payments.json",
            journal_store=files.journal_store_url(settings),
        ),
    )
    parts = {
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
    return configured(Api).bind(stores, urls, tracks, settings.public_url, models, parts)
