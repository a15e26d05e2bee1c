"""Analysis by the service on this machine: free jobs for files, which do not touch credits."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import astuple
from pathlib import Path

from configs.settings import Settings
from configs.tables import load_table
from models.rhythm.tempo import TempoRange
from pipelines.analysis.features import from_json
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import decode_segments
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import InternalError, ServiceUnavailableError, UnprocessableAudioError
from serve_app.domain.tiers import Tiers
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import AnalysisJob, FileSource, JobRecord, NewJob
from serve_app.local.embedded_redis import is_alive
from serve_app.services.scan.entries import Hearing
from serve_app.services.scan.facts import LIMITS
from serve_app.store.client import connect

JOBS_AT_ONCE = 8
"""Jobs of one command that wait or run: enough for the workers, without a long queue."""

ACCOUNT = "library"
"""Account whose lane the jobs wait in. They are free, so it needs no credits."""

TIER = "scale"
TIMEOUT_S = 5.0
JOB_LIMIT_S = 1800.0
LOOK_S = 10.0
"""Interval at which a wait checks that the service is alive."""

MAX_BYTES = 1 << 40
"""Limit that applies only to addresses, never to a file."""

BUSY_PAUSE_S = 2.0
BUSY_TRIES = 300


class ServiceEngine:
    """Analyses with the running service, as free jobs that do not touch credits."""

    def __init__(
        self, jobs: Jobs, is_running: Callable[[], bool], within: TempoRange | None = None
    ) -> None:
        """Prepare.

        Args:
            jobs: Where to submit.
            is_running: Returns whether the service that runs the jobs is alive.
            within: Range that a file's tempo must be in.
        """
        self.n_at_once = JOBS_AT_ONCE
        self._jobs = jobs
        self._is_running = is_running
        self._within = within

    async def hear(self, path: Path) -> Hearing:
        """See `Engine`."""
        fingerprint = asyncio.create_task(asyncio.to_thread(_fingerprint_of, path))
        return Hearing(await self.analyze(path), await fingerprint)

    async def analyze(self, path: Path) -> TrackFeatures:
        """Have a file analysed, with its embedding.

        Args:
            path: Absolute, as the service runs elsewhere.

        Raises:
            UnprocessableAudioError: It is not fit for analysis; ``code`` says why.
            ServiceUnavailableError: The service did not do it in time, or has ended.
            InternalError: The service lost the result.
        """
        job_id = await self._submit(path)
        job = await self._ended(job_id)
        if job is None or not job.state.is_terminal:
            raise ServiceUnavailableError("the service did not analyse it in time; try again", 60)
        await self._jobs.forget(ACCOUNT, job_id)  # otherwise results would accumulate for days
        if job.error is not None:
            raise UnprocessableAudioError(job.error.message, job.error.code)
        if job.result is None:
            raise InternalError("the service lost what it had analysed; try again")
        return from_json(job.result)

    async def _ended(self, job_id: str) -> JobRecord | None:
        """Wait for a job to end and return it."""
        until_s = time.monotonic() + JOB_LIMIT_S
        while True:
            job = await self._jobs.wait(ACCOUNT, job_id, LOOK_S)
            if job is None or job.state.is_terminal or time.monotonic() >= until_s:
                return job
            if not self._is_running():
                raise ServiceUnavailableError("the service has ended; start it with `afa up`", 60)

    async def _submit(self, path: Path) -> str:
        job = NewJob(
            job_id=f"job_{new_ulid()}",
            account=ACCOUNT,
            tier=TIER,
            work=AnalysisJob(
                source=FileSource(str(path)),
                max_audio_s=LIMITS.max_seconds,
                max_bytes=MAX_BYTES,
                include_embedding=True,
                is_for_lookup=True,
                tempo_range=astuple(self._within) if self._within else None,
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
async def service_engine(
    settings: Settings, files: LocalFiles, within: TempoRange | None
) -> AsyncIterator[ServiceEngine]:
    """Connect to the jobs of this installation's service; see `ServiceEngine`.

    Raises:
        NotRunningError: There is no Redis.
    """
    store = connect(files.ledger_url(settings), timeout_s=TIMEOUT_S, shards=settings.ledger_shards)
    jobs = Jobs(store, Tiers(load_table("tiers")))

    def is_running() -> bool:
        session = files.read_session()
        return session is not None and is_alive(session["pids"]["service"])

    try:
        await store.claim_shards()
        yield ServiceEngine(jobs, is_running, within)
    finally:
        await jobs.close()
        await store.close()
