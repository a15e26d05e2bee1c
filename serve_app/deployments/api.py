"""The HTTP ingress: no torch, no model, no waiting on anything but Redis and the object store."""

from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from serve_app.api.asgi import create_app
from serve_app.checkpoints.freeze import freeze_loaded
from serve_app.checkpoints.watch import ChoiceWatch
from serve_app.composition.options import (
    BrowserOptions,
    LibraryOptions,
    ModelOptions,
    StoreOptions,
    TrackOptions,
    UrlOptions,
)
from serve_app.composition.services import Surroundings, compose_services
from serve_app.composition.stores import open_stores
from serve_app.deployments.handles import (
    RayEmbed,
    RayIdentify,
    RayQuick,
    RayTexts,
    probe,
    probe_audit,
    probe_journal,
)
from serve_app.deployments.telemetry import tell_operators
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.services.readiness import AUDIT, JOURNAL


def most_replicas() -> int:
    """Return how many replicas the Serve file allows this replica's deployment."""
    config = serve.get_replica_context()._deployment_config
    scaling = config.autoscaling_config
    return (config.num_replicas or 1) if scaling is None else scaling.max_replicas


@serve.deployment
@serve.ingress()
class Api:
    """Builds the ASGI application from the stores and the other deployments' handles."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        stores: StoreOptions,
        urls: UrlOptions,
        tracks: TrackOptions,
        library: LibraryOptions,
        browsers: BrowserOptions,
        public_url: str,
        models: ModelOptions,
        default_models: dict[str, str],
        handles: dict[str, DeploymentHandle[Any]],
    ) -> None:
        """Compose the services.

        Args:
            stores: Where the stores are.
            urls: Addresses that webhooks and audio may have.
            tracks: Services that identify and describe tracks.
            library: Where the server's track library is.
            browsers: What web pages may do.
            public_url: URL at which customers reach this service.
            models: The available embeddings, and which may be named.
            default_models: Role to ids of the checkpoints that are used if none are chosen.
            handles: The other deployments, by the names that ``/readyz`` shows.
        """
        tell_operators()
        opened = open_stores(stores, replicas=most_replicas())
        with suppress(ServiceUnavailableError):  # it serves what it can without the ledger
            await opened.accounts.note_pepper()
        self._browsers = browsers
        tracks.follow()
        models.follow()
        self._services = compose_services(
            opened,
            Surroundings(
                public_url=public_url,
                urls=urls,
                tracks=tracks,
                library=library.open(),
                library_adding=library.adding,
                quick=RayQuick(handles["bpm"]),
                identify=RayIdentify(handles["identify"]),
                embed=RayEmbed(handles["worker"]),
                texts=RayTexts(handles["embedding"]),
                options=models,
                models=default_models,
                watch=ChoiceWatch(stores.ledger_url, default_models),
                probes={name: partial(probe, handle) for name, handle in handles.items()}
                | {AUDIT: partial(probe_audit, handles["keeper"])}
                | {JOURNAL: partial(probe_journal, handles["keeper"])},
            ),
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve in the replica, after the constructor."""
        app = create_app(
            self._services,
            cors_origins=self._browsers.cors_origins,
            playground=self._browsers.playground,
        )
        freeze_loaded()
        return app
