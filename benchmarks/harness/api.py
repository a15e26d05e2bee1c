"""The real API on Serve or on plain uvicorn, with stand-ins for the models.

``python -m benchmarks.harness.api`` takes a `Plan` on the first line of stdin, prints "ready", and
ends with its stdin. Invariant: when it has ended, so have Ray, the replicas and HAProxy.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.server_process import (
    UVICORN,
    free_port,
    launched,
    serve_ray,
    serve_uvicorn,
    wait_for_port,
)
from pipelines.analysis.records import UNKNOWN_KEY, QuickFeatures
from serve_app.composition.options import ModelOptions, StoreOptions, TrackOptions, UrlOptions
from serve_app.composition.services import Surroundings, compose_services
from serve_app.composition.stores import open_stores
from serve_app.library.library import Library

MODELS = {"beats": "stand-in"}
"""Model ids in cache keys."""


class BpmPlan(BaseModel):
    """A stand-in for the tempo deployment: its concurrency, and how much more it accepts."""

    service_s: float
    concurrent: int
    max_ongoing: int
    max_queued: int


class Plan(BaseModel):
    """What to serve, and where."""

    server: Literal["uvicorn", "serve"]
    port: int
    stores: StoreOptions
    catalog_dir: Path
    bpm: BpmPlan | None = None

    def tracks(self) -> TrackOptions:
        """Return the catalog, without any provider."""
        return TrackOptions(catalog_dir=self.catalog_dir, fingerprint_dir=self.catalog_dir / "none")

    def models(self) -> ModelOptions:
        """Return the cards, without any embedding."""
        return ModelOptions(model_dir=self.catalog_dir / "none")


@dataclass(frozen=True, slots=True)
class Never:
    """Replaces the deployments that a cache hit does not reach."""

    async def analyse(self, *_: object, **__: object) -> Any:
        """Never reached."""
        raise RuntimeError("a cache hit computes nothing")

    identify = embed = embed_text = analyse


class Slow:
    """Replaces the tempo deployment: takes time, but no processor."""

    def __init__(self, service_s: float, concurrent: int) -> None:
        self._service_s = service_s
        self._turns = asyncio.Semaphore(concurrent)

    async def analyse(self, *_: object) -> QuickFeatures:
        """Wait and return a tempo."""
        async with self._turns:
            await asyncio.sleep(self._service_s)
        return QuickFeatures(120.0, 1.0, UNKNOWN_KEY, UNKNOWN_KEY, "")

    async def ready(self) -> bool:
        """Answer at once."""
        return True


def surroundings(plan: Plan) -> Surroundings:
    """Return what the API needs in addition to the stores."""
    return Surroundings(
        public_url=f"http://127.0.0.1:{plan.port}",
        urls=UrlOptions(),
        tracks=plan.tracks(),
        quick=Never(),
        identify=Never(),
        embed=Never(),
        texts=Never(),
        options=plan.models(),
        models=MODELS,
        library=Library(
            (plan.catalog_dir / "library").absolute().as_uri(), plan.catalog_dir / "library-view"
        ),
        probes={},
    )


def make_app(plan: Plan) -> FastAPI:
    """Make the API without Serve."""
    from serve_app.api.asgi import create_app

    return create_app(compose_services(open_stores(plan.stores), surroundings(plan)))


def bind(plan: Plan) -> Any:
    """Bind one replica of the real deployment."""
    from ray import serve

    from serve_app.deployments.api import Api

    wrap: Any = serve.deployment(name="Idle", ray_actor_options={"num_cpus": 0.1})
    idle = wrap(Never)
    bpm = idle.bind()
    if plan.bpm is not None:
        slow: Any = serve.deployment(
            name="Bpm",
            max_ongoing_requests=plan.bpm.max_ongoing,
            max_queued_requests=plan.bpm.max_queued,
            ray_actor_options={"num_cpus": 0.1},
        )
        bpm = slow(Slow).bind(plan.bpm.service_s, plan.bpm.concurrent)
    api: Any = Api
    return api.options(max_ongoing_requests=500, ray_actor_options={"num_cpus": 0.2}).bind(
        stores=plan.stores,
        urls=UrlOptions(),
        tracks=plan.tracks(),
        public_url=f"http://127.0.0.1:{plan.port}",
        models=plan.models(),
        default_models=MODELS,
        handles={"bpm": bpm} | dict.fromkeys(("identify", "worker", "embedding"), idle.bind()),
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test.

    Attributes:
        pid: Its first process; all others descend from it.
    """

    port: int
    pid: int


@contextmanager
def serving(
    profile: str, stores: StoreOptions, catalog_dir: Path, bpm: BpmPlan | None = None
) -> Iterator[Server]:
    """Run the API in a separate process until the block ends."""
    port = free_port()
    server: Literal["uvicorn", "serve"] = "uvicorn" if profile == UVICORN else "serve"
    plan = Plan(server=server, port=port, stores=stores, catalog_dir=catalog_dir, bpm=bpm)
    with launched("benchmarks.harness.api", plan.model_dump(mode="json"), profile) as pid:
        wait_for_port(port)
        yield Server(port, pid)


def main() -> None:
    """Serve until stdin ends."""
    plan = Plan.model_validate_json(sys.stdin.readline())
    if plan.server == "uvicorn":
        serve_uvicorn(make_app(plan), plan.port)
    else:
        serve_ray(lambda: bind(plan), "afa", plan.port)


if __name__ == "__main__":
    main()
