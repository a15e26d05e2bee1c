"""Claims analysis jobs and runs them; replicas scale with the lanes."""

import asyncio
import logging
import uuid
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from pipelines.analysis.excerpt import Excerpt
from pipelines.audio.decode import decode
from serve_app.composition.options import LibraryOptions, StoreOptions, UrlOptions, WorkerOptions
from serve_app.composition.stores import open_stores
from serve_app.deployments.autoscaling import BACKLOG, BUSY
from serve_app.deployments.backend import RayBackend
from serve_app.deployments.telemetry import tell_operators
from serve_app.domain.errors import ServiceUnavailableError, with_cause
from serve_app.ledger.jobs.types import Claim, source_from_json
from serve_app.library.writer import LibraryWriter
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.services.audio.refusal import Refusal
from serve_app.services.audio.sources import SourceFetcher
from serve_app.services.embedding import Embedded, Embedder
from serve_app.services.jobs.run import JobRunner
from serve_app.services.lookup.feature_cache import FeatureCache

logger = logging.getLogger(__name__)

CLAIM_WAIT_S = 5.0
FAULT_PAUSE_S = 1.0


@serve.deployment
class AnalysisWorker:
    """Pulls jobs from the lanes: those that it cannot start stay queued for others."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it; the loops need a running loop
        self,
        stores: StoreOptions,
        urls: UrlOptions,
        options: WorkerOptions,
        library: LibraryOptions,
        spectral: DeploymentHandle[Any],
        mood: DeploymentHandle[Any],
        embedding: DeploymentHandle[Any] | None,
    ) -> None:
        tell_operators()
        opened = open_stores(stores, in_background=True)
        excerpt = Excerpt() if options.analysis == "partial" else None
        self._jobs = opened.jobs
        self._worker_id = f"worker-{uuid.uuid4().hex[:12]}"
        sources = SourceFetcher(opened.objects, AudioUrlFetcher(urls.guard()))
        backend = RayBackend(spectral, mood, embedding, excerpt)
        self._embedder = Embedder(sources, backend, decode, options.concurrent_jobs)
        self._runner = JobRunner(
            opened.jobs,
            opened.objects,
            sources,
            backend,
            decode,
            # Cache keys come with the jobs; the worker makes none.
            FeatureCache(opened.cache, str),
            LibraryWriter(library.open()),
        )
        self._n_slots, self._n_running = options.concurrent_jobs, 0
        self._loops = [
            asyncio.create_task(self._work(slot)) for slot in range(options.concurrent_jobs)
        ]
        self._fetches: set[asyncio.Task[None]] = set()
        self._fetch_places = asyncio.Semaphore(options.concurrent_fetches)
        self._loops.append(asyncio.create_task(self._fetch()))

    async def _work(self, slot: int) -> None:
        while True:
            try:
                claim = await self._jobs.claim(f"{self._worker_id}-{slot}", CLAIM_WAIT_S)
                if claim is not None:
                    self._n_running += 1
                    try:
                        await self._runner.run(claim)
                    finally:
                        self._n_running -= 1
            except Exception as error:  # noqa: BLE001  the lanes wait
                self._tell(error)
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _fetch(self) -> None:
        """Fetch addresses separately from jobs, so that a slow host delays no job."""
        while True:
            await self._fetch_places.acquire()
            claim = None
            try:
                claim = await self._jobs.claim(f"{self._worker_id}-fetch", CLAIM_WAIT_S, "fetch")
            except Exception as error:  # noqa: BLE001  the lanes wait
                self._tell(error)
                await asyncio.sleep(FAULT_PAUSE_S)
            if claim is None:
                self._fetch_places.release()
                continue
            task = asyncio.create_task(self._fetch_one(claim))
            self._fetches.add(task)
            task.add_done_callback(self._fetches.discard)

    async def _fetch_one(self, claim: Claim) -> None:
        try:
            await self._runner.run(claim)
        except Exception as error:  # noqa: BLE001  then its lease ends
            self._tell(error)
        finally:
            self._fetch_places.release()

    def _tell(self, error: Exception) -> None:
        """Log why a round failed; a ledger that is unavailable is no fault of the worker."""
        if isinstance(error, ServiceUnavailableError):
            logger.warning("worker %s: %s", self._worker_id, with_cause(error))
        else:
            logger.error("worker %s", self._worker_id, exc_info=error)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what `QueueDelayPolicy` uses, for Serve's controller: the wait in the lanes."""
        standings = (await self._jobs.standings())["analyse"]
        oldest_s = max((lane.oldest_wait_s for lane in standings), default=0.0)
        return {BACKLOG: oldest_s, BUSY: self._n_running / self._n_slots}

    async def embed(
        self, source: dict[str, Any], max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded | Refusal:
        """See `EmbedBackend`; unsuitable audio is answered with a refusal, not an error."""
        return await self._embedder.embed(
            source_from_json(source), max_audio_s=max_audio_s, max_bytes=max_bytes, model=model
        )

    async def check_health(self) -> None:
        """Raise when a loop has ended, so that Serve replaces the replica."""
        for loop in self._loops:
            if loop.done():
                raise RuntimeError("a worker loop has ended")

    async def ready(self) -> bool:
        """Answer once the loops run."""
        return True
