"""Compute a catalog track's features as a job, once for all who ask at the same time.

Invariant: while a job of a track runs, everyone who asks for the track waits for that job. The job
itself is free; a caller who waits holds the price, and gets it back if there is no answer.
"""

import asyncio
import json

from pipelines.analysis.features import from_json
from pipelines.analysis.records import TrackFeatures
from serve_app.domain.errors import (
    InternalError,
    ServiceUnavailableError,
    TrackNotFoundError,
    UnprocessableAudioError,
    UrlFetchError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.telemetry.facts import known_facts
from serve_app.domain.telemetry.spans import traced_ids
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import AnalysisJob, JobFailure, JobRecord, JobState, NewJob, Source
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.store.cache import Cache

FLIGHTS = "flight"
FLIGHT_S = 1800.0
"""A job that has neither finished nor failed by then counts as lost."""

LOCK_WAIT_S = 2.0
DEFAULT_WAIT_S = 25.0
AUDIO_CODES = frozenset(
    {UnprocessableAudioError.code, "audio_too_long", "audio_too_short", UrlFetchError.code}
)
UNFIT_AUDIO = (
    "the track is known, but its audio cannot be analysed; upload it: "
    "POST /v1/audio-features/upload"
)


class TrackJobs:
    """Submits jobs and waits for them."""

    def __init__(self, jobs: Jobs, cache: FeatureCache, flights: Cache, wait_s: float) -> None:
        self._jobs = jobs
        self._cache = cache
        self._flights = flights
        self._wait_s = wait_s
        self._local: dict[str, asyncio.Lock] = {}

    async def compute(
        self,
        caller: Caller,
        tier: Tier,
        key: str,
        source: Source,
        *,
        whole: bool = False,
        library_id: str = "",
    ) -> TrackFeatures:
        """Return the features of a track, from the job that computes them.

        Args:
            caller: The job waits in this caller's lane, unless one is already running.
            tier: The caller's tier.
            key: See `FeatureCache.key`; the worker writes the features there.
            source: The track's audio.
            whole: Whether to include segments, sections and embedding.
            library_id: The library's track to store the features with; "" for none.

        Raises:
            TrackNotFoundError: The track's audio cannot be analysed.
            ServiceUnavailableError: Not computed in time; the job goes on.
        """
        for _ in range(2):
            account, job_id = await self._join(caller, tier, key, source, library_id)
            job = await self._jobs.wait(account, job_id, self._wait_s)
            if job is None or not job.state.is_terminal:
                break
            if job.error is not None or job.result is None:
                raise failure_of(job.error)
            if not whole:
                return from_json(job.result)
            features = await self._cache.whole(key)
            if features is not None:
                return features
            # The job keeps only the light record, and the cache has lost the full one: rerun it.
            await self._flights.put(FLIGHTS, key, b"", 1.0)
        raise ServiceUnavailableError(
            "the features are being computed; ask again in a moment, you were not charged", 5
        )

    async def _join(
        self, caller: Caller, tier: Tier, key: str, source: Source, library_id: str
    ) -> tuple[str, str]:
        lock = self._local.setdefault(key, asyncio.Lock())
        try:
            async with lock, self._flights.single_flight(f"flight:{key}", LOCK_WAIT_S):
                running = await self._running(key)
                if running is not None:
                    return running
                job = await self._submit(caller, tier, key, source, library_id)
                pointer = json.dumps([job.account, job.job_id]).encode()
                await self._flights.put(FLIGHTS, key, pointer, FLIGHT_S)
                return job.account, job.job_id
        finally:
            if not lock.locked():
                self._local.pop(key, None)

    async def _running(self, key: str) -> tuple[str, str] | None:
        pointer = await self._flights.get(FLIGHTS, key)
        if not pointer:
            return None
        account, job_id = json.loads(pointer)
        job = await self._jobs.get(account, job_id)
        if job is None or job.state is JobState.FAILED:
            return None
        return account, job_id

    async def _submit(
        self, caller: Caller, tier: Tier, key: str, source: Source, library_id: str
    ) -> JobRecord:
        return await self._jobs.submit(
            NewJob(
                job_id=f"job_{new_ulid()}",
                account=caller.account,
                tier=tier.name,
                work=AnalysisJob(
                    source=source,
                    max_audio_s=tier.max_audio_s,
                    max_bytes=tier.upload_bytes,
                    include_embedding=True,
                    cache_key=key,
                    is_for_lookup=True,
                    library_id=library_id,
                    trace_id=known_facts().get("trace_id", ""),
                    span_id=traced_ids()[1],
                ),
                cost=0,
            )
        )


def failure_of(error: JobFailure | None) -> Exception:
    """Turn a job's failure into the error of the look-up that waited for it."""
    if error is not None and error.code in AUDIO_CODES:
        return TrackNotFoundError(UNFIT_AUDIO)
    return InternalError("the analysis failed on our side; you were not charged")
