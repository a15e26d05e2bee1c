"""The two ways in which a scan analyses files: workers of its own, and the service that runs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path

from configs.settings import Settings
from configs.tables import load_table
from pipelines.analysis.features import from_json, to_json
from pipelines.audio.decode import decode_segments
from pipelines.audio.sandbox import end_with_parent
from pipelines.audio.waveform import UndecodableAudioError
from serve_app.cli import analyze
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import InternalError, ServiceUnavailableError
from serve_app.domain.tiers import Tiers
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import AnalysisJob, FileSource, NewJob
from serve_app.services.scan.facts import LIMITS
from serve_app.services.scan.scan import Hearing
from serve_app.store.client import connect

JOBS_AT_ONCE = 8
"""Jobs of one scan that wait or run in the service: enough for its workers, and no long queue."""

ACCOUNT = "library"
"""Whose lane the jobs wait in. They are free, so that it needs no credits."""

TIER = "scale"
TIMEOUT_S = 5.0
JOB_LIMIT_S = 1800.0
MAX_BYTES = 1 << 40
"""Only addresses are held to it, never a file."""

BUSY_PAUSE_S = 2.0
BUSY_TRIES = 300


class WorkersEngine:
    """Analyses in processes of its own, which end with this one, however it ends."""

    def __init__(self, n_workers: int, config: Path | None, *, is_partial: bool) -> None:
        self.n_at_once = n_workers
        self._loading = (config, is_partial, os.getpid())
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.n_at_once,
            mp_context=get_context("spawn"),
            initializer=_start,
            initargs=self._loading,
        )

    async def hear(self, path: Path) -> Hearing:
        """See `Engine`."""
        pool = self._pool
        try:
            record, fingerprint = await asyncio.get_running_loop().run_in_executor(
                pool, _hear, path
            )
        except BrokenProcessPool as error:
            if pool is self._pool:
                self._pool = self._new_pool()
            raise InternalError(
                "the process that analysed it ended, for want of memory perhaps; scan again"
            ) from error
        return Hearing(from_json(record), fingerprint)

    def close(self) -> None:
        """End the workers, without waiting for what they do."""
        workers = list(self._pool._processes.values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


def _start(config: Path | None, is_partial: bool, parent: int) -> None:
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    analyze.start_worker(0, config, is_partial)


def _hear(path: Path) -> tuple[bytes, str | None]:
    from pipelines.audio.decode import decode
    from pipelines.fingerprint.make import make_chromaprint

    waveform = decode(path, LIMITS)
    features, _ = analyze.loaded().hear(waveform)
    return to_json(features), make_chromaprint(waveform)


class ServiceEngine:
    """Has the running service analyse, as free jobs that touch no credits."""

    def __init__(self, jobs: Jobs) -> None:
        self.n_at_once = JOBS_AT_ONCE
        self._jobs = jobs

    async def hear(self, path: Path) -> Hearing:
        """See `Engine`."""
        job_id = await self._submit(path)
        fingerprint = asyncio.create_task(asyncio.to_thread(_fingerprint_of, path))
        job = await self._jobs.wait(ACCOUNT, job_id, JOB_LIMIT_S)
        if job is None or not job.state.is_terminal:
            raise ServiceUnavailableError("the service did not analyse it in time; scan again", 60)
        await self._jobs.forget(ACCOUNT, job_id)  # else results would pile up for days
        if job.result is None:
            message = "the service could not analyse it" if job.error is None else job.error.message
            raise UndecodableAudioError(message)
        return Hearing(from_json(job.result), await fingerprint)

    async def _submit(self, path: Path) -> str:
        job = NewJob(
            job_id=f"job_{new_ulid()}",
            account=ACCOUNT,
            tier=TIER,
            kind="analysis",
            work=AnalysisJob(
                source=FileSource(str(path)),
                max_audio_s=LIMITS.max_seconds,
                max_bytes=MAX_BYTES,
                include_embedding=True,
                is_for_lookup=True,
            ),
            cost=0,
        )
        for _ in range(BUSY_TRIES - 1):
            try:
                return (await self._jobs.submit(job)).job_id
            except ServiceUnavailableError:
                await asyncio.sleep(BUSY_PAUSE_S)
        return (await self._jobs.submit(job)).job_id


def _fingerprint_of(path: Path) -> str | None:
    from pipelines.fingerprint.make import CHROMAPRINT_S, make_chromaprint

    return make_chromaprint(decode_segments(path, [(0.0, CHROMAPRINT_S)], LIMITS)[0])


@asynccontextmanager
async def service_engine(settings: Settings, files: LocalFiles) -> AsyncIterator[ServiceEngine]:
    """Connect to the jobs of the service of this installation.

    Raises:
        NotRunningError: There is no Redis.
    """
    store = connect(files.ledger_url(settings), timeout_s=TIMEOUT_S, shards=settings.ledger_shards)
    jobs = Jobs(store, Tiers(load_table("tiers")))
    try:
        await store.claim_shards()
        yield ServiceEngine(jobs)
    finally:
        await jobs.close()
        await store.close()
