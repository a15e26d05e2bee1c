"""Builds the Serve application: the only place that binds deployments together."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict
from ray.serve import Application, Deployment

from configs.settings import Settings
from serve_app.deployments.analysis_worker import AnalysisWorker
from serve_app.deployments.api import Api
from serve_app.deployments.bpm import Bpm
from serve_app.deployments.embedding import Embedding
from serve_app.deployments.identify import Identify
from serve_app.deployments.keeper import Keeper
from serve_app.deployments.mood import Mood
from serve_app.deployments.options import (
    ModelOptions,
    StoreOptions,
    TrackOptions,
    UrlOptions,
    WorkerOptions,
)
from serve_app.deployments.spectral import Spectral
from serve_app.local_files import LocalFiles


class ModelArgs(BaseModel):
    """Batching of one model deployment; see `ModelOptions`."""

    model_config = ConfigDict(extra="forbid")

    max_windows: int = 0
    batch_windows: int = 16
    queue_windows: int = 4096


class AppArgs(BaseModel):
    """The ``args`` of the application in a Serve configuration file.

    Replicas, CPUs and GPUs are Serve's own options, under ``deployments`` of the same file.
    Addresses and secrets come from the environment (`configs.settings.Settings`).
    """

    model_config = ConfigDict(extra="forbid")

    spectral: ModelArgs = ModelArgs()
    mood: ModelArgs = ModelArgs()
    embedding: ModelArgs = ModelArgs()
    worker: WorkerOptions = WorkerOptions()


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
    )
    urls = UrlOptions(ports=settings.url_ports, networks=settings.url_networks)

    def configured(cls: type) -> Deployment:
        deployment = cast("Deployment", cls)  # what the decorator really returns
        return deployment.options(**overrides.get(deployment.name, {}))

    def model_options(model: ModelArgs) -> ModelOptions:
        return ModelOptions(
            model_dir=settings.resolved_model_dir(),
            licences=settings.model_licences,
            device=settings.device,
            **model.model_dump(),
        )

    spectral = configured(Spectral).bind(model_options(args.spectral))
    mood = configured(Mood).bind(model_options(args.mood))
    embedding = configured(Embedding).bind(model_options(args.embedding))
    worker = configured(AnalysisWorker).bind(stores, urls, args.worker, spectral, mood, embedding)
    bpm = configured(Bpm).bind(stores, urls, model_options(ModelArgs()))
    tracks = TrackOptions(
        catalog_dir=files.catalog_dir,
        fingerprint_dir=files.fingerprint_dir,
        batch_cached_free=settings.batch_cached_free,
        providers=settings.providers,
        recognisers=settings.recognisers,
    )
    cards = model_options(ModelArgs()).cards()
    models = {role: "+".join(card.model_id for card in chosen) for role, chosen in cards.items()}
    identify = configured(Identify).bind(stores, tracks, model_options(ModelArgs()), models)
    keeper = configured(Keeper).bind(stores, urls, settings.data_dir / "payments.json")
    parts = {
        "worker": worker,
        "keeper": keeper,
        "spectral": spectral,
        "mood": mood,
        "embedding": embedding,
        "bpm": bpm,
        "identify": identify,
    }
    return configured(Api).bind(stores, urls, tracks, settings.public_url, models, parts)
