"""The HTTP ingress: no torch, no model, no waiting on anything but Redis and the object store."""

from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from serve_app.api.asgi import create_app
from serve_app.api.services import ApiServices
from serve_app.deployments.handles import probe
from serve_app.deployments.options import StoreOptions, UrlOptions
from serve_app.deployments.stores import open_stores
from serve_app.providers.audio_url import UrlGuard
from serve_app.services.analysis import AnalysisService
from serve_app.services.readiness import Readiness


@serve.deployment
@serve.ingress()
class Api:
    """Builds the ASGI application from the stores and the other deployments' handles."""

    def __init__(
        self,
        stores: StoreOptions,
        urls: UrlOptions,
        public_url: str,
        parts: dict[str, DeploymentHandle[Any]],
    ) -> None:
        opened = open_stores(stores)
        probes = {name: partial(probe, handle) for name, handle in parts.items()}
        self._services = ApiServices(
            tiers=opened.tiers,
            prices=opened.prices,
            public_url=public_url.rstrip("/"),
            accounts=opened.accounts,
            ledger=opened.ledger,
            jobs=opened.jobs,
            analysis=AnalysisService(
                opened.jobs,
                opened.objects,
                UrlGuard(ports=urls.ports, networks=urls.networks),
                opened.prices,
            ),
            readiness=Readiness({"ledger": opened.ping_ledger, **probes}),
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve in the replica, after the constructor."""
        return create_app(self._services)
