"""Accept audio and make an analysis job of it."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import astuple, dataclass

from models.rhythm.tempo import TempoRange
from pipelines.analysis.features import from_json
from pipelines.analysis.records import TrackFeatures
from serve_app.domain.errors import (
    JobNotFoundError,
    JobRunningError,
    ServiceUnavailableError,
    UnansweredError,
)
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.telemetry.facts import known_facts
from serve_app.domain.telemetry.spans import traced_ids
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import ALPHABET, LENGTH
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import (
    AnalysisJob,
    JobPosition,
    JobRecord,
    JobState,
    JobSummary,
    NewJob,
    ObjectSource,
    SimulatedSource,
    Source,
    UrlSource,
)
from serve_app.services.audio.audio import Audio
from serve_app.services.audio.intake import UPLOADS
from serve_app.store.objects import ObjectStore

logger = logging.getLogger(__name__)

WITHDRAW_AGAIN_S = 1.0
WITHDRAW_ATTEMPTS = 900
"""At one a second, over 15 minutes: after that nothing waits in a lane any longer."""

LOST_RETRY_S = 5

UploadSource = ObjectSource | UrlSource
"""What customers send."""


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What the customer asked for; an equal ``request_id`` makes the same job.

    Attributes:
        library_id: The library's track to store the features with; "" for none.
        embedding_model: See `AnalysisJob`.
    """

    request_id: str
    format: str | None = None
    include_embedding: bool = False
    library_id: str = ""
    tempo_range: TempoRange | None = None
    embedding_model: str = ""

    @property
    def is_repeatable(self) -> bool:
        """Whether the request named an idempotency key, so that a repeat finds the same job."""
        return len(self.request_id) != LENGTH


class AnalysisService:
    """Submits analysis jobs and reads them back.

    Invariant: the script that holds the credits also writes the job record, after the whole body
    has arrived; whatever fails before that costs nothing and leaves no object behind.
    """

    def __init__(
        self,
        jobs: Jobs,
        objects: ObjectStore,
        prices: Prices,
        source_of: Callable[[UploadSource], Source],
    ) -> None:
        """Use the stores.

        Args:
            jobs: Where jobs are queued.
            objects: Where uploads are stored.
            prices: What a job costs.
            source_of: Turns what was sent into what is analysed; for test keys, simulated audio.
        """
        self._jobs = jobs
        self._objects = objects
        self._prices = prices
        self._source_of = source_of
        self._withdrawals: set[asyncio.Task[None]] = set()

    async def submit(
        self, caller: Caller, tier: Tier, audio: Audio, options: AnalysisOptions
    ) -> JobRecord:
        """Accept the audio and queue its analysis.

        Raises:
            PayloadTooLargeError: The body exceeded the tier's upload size; nothing was stored.
            AssetNotFoundError: The asset expired, never existed, or is another owner's.
            BadRequestError: The body is empty, or not a fetchable public HTTP(S) address.
            InsufficientCreditsError: The balance does not cover the cost; nothing was stored.
        """
        job_id = job_id_of(options.request_id)
        source = await audio.source(job_id)
        what = source.sha256 if isinstance(source, ObjectSource) else source.url
        job = NewJob(
            job_id=job_id,
            account=caller.account,
            tier=tier.name,
            work=AnalysisJob(
                source=self._source_of(source),
                max_audio_s=tier.max_audio_s,
                max_bytes=tier.upload_bytes,
                format=options.format,
                include_embedding=options.include_embedding,
                library_id=options.library_id,
                tempo_range=astuple(options.tempo_range) if options.tempo_range else None,
                trace_id=known_facts().get("trace_id", ""),
                span_id=traced_ids()[1],
                embedding_model=options.embedding_model,
            ),
            cost=self._prices.analysis,
            fingerprint=fingerprint(what, options),
        )
        try:
            return await self._jobs.submit(job)
        except BaseException as error:
            await self._undo(caller, job_id, source, options, error)
            raise

    async def _undo(
        self,
        caller: Caller,
        job_id: str,
        source: UploadSource,
        options: AnalysisOptions,
        error: BaseException,
    ) -> None:
        """Remove all traces of a failed submission, unless a repeat of it will ask for its job.

        The job may have been queued all the same, but its id was never returned. If its upload is
        gone, it fails and is refunded; a job for an address is withdrawn in the background.
        """
        if isinstance(source, ObjectSource):
            if not (options.is_repeatable and await self._may_exist(caller, job_id)):
                await self._objects.delete(source.key)
        elif not options.is_repeatable and isinstance(
            error, UnansweredError | asyncio.CancelledError
        ):
            task = asyncio.create_task(self._withdraw(caller.account, job_id))
            self._withdrawals.add(task)
            task.add_done_callback(self._withdrawals.discard)

    async def _may_exist(self, caller: Caller, job_id: str) -> bool:
        try:
            return await self._jobs.get(caller.account, job_id) is not None
        except ServiceUnavailableError:
            return True  # an object that belongs to no job is swept

    async def _withdraw(self, account: str, job_id: str) -> None:
        for _ in range(WITHDRAW_ATTEMPTS):
            try:
                if not await self._jobs.withdraw(account, job_id):
                    # It ended before the ledger was back: the work was done, and is charged.
                    logger.warning("%s was complete before it could be withdrawn", job_id)
            except ServiceUnavailableError:
                await asyncio.sleep(WITHDRAW_AGAIN_S)
            else:
                return
        logger.error("%s could not be withdrawn; the ledger is unavailable", job_id)

    async def get_job(self, caller: Caller, job_id: str, wait_s: float = 0) -> JobRecord:
        """Read a job, waiting up to ``wait_s`` seconds for its end.

        Raises:
            JobNotFoundError: It expired, never existed, or is another owner's.
            ServiceUnavailableError: The ledger is unavailable, or it may have lost the job in a
                failover and is restoring it.
        """
        if wait_s > 0:
            job = await self._jobs.wait(caller.account, job_id, wait_s)
        else:
            job = await self._jobs.get(caller.account, job_id)
        if job is None and await self._jobs.may_have_lost(caller.account):
            raise ServiceUnavailableError(
                "a failure may have lost some jobs, perhaps this one; they are being restored; "
                "ask again",
                LOST_RETRY_S,
            )
        job = job or await self._jobs.get(caller.account, job_id)  # it may be restored by now
        if job is None:
            raise JobNotFoundError("no such job; jobs expire with their tier's asset lifetime")
        return job

    async def page(
        self, caller: Caller, limit: int, before: JobPosition | None
    ) -> tuple[list[JobSummary], JobPosition | None]:
        """List the caller's jobs, newest first, and where the next page begins."""
        items = await self._jobs.page(caller.account, limit + 1, before)
        if len(items) <= limit:
            return items, None
        return items[:limit], items[limit - 1].position

    async def delete(self, caller: Caller, job_id: str) -> None:
        """Delete a job and its result; a waiting job is cancelled and refunded.

        Raises:
            JobNotFoundError: It expired, never existed, or is another owner's.
            JobRunningError: It is being worked on.
        """
        job = await self.get_job(caller, job_id)
        if job.state is JobState.RUNNING:
            raise JobRunningError("the job is running; delete it when it has ended")
        if job.state is JobState.QUEUED:
            await self._jobs.withdraw(caller.account, job_id)
        await self._jobs.forget(caller.account, job_id)
        source = job.work.source
        if isinstance(source, ObjectSource | SimulatedSource) and source.key.startswith(UPLOADS):
            await self._objects.delete(source.key)

    @staticmethod
    def features_of(job: JobRecord) -> TrackFeatures | None:
        """Return a job's features; None unless it is complete."""
        return None if job.result is None else from_json(job.result)


def fingerprint(what: str, options: AnalysisOptions) -> str:
    """Return what must be equal for two requests under one id to count as the same.

    Args:
        what: The hash of the bytes, or the address.
        options: What was asked for.
    """
    asked: list[object] = [what, options.format, options.include_embedding]
    if options.tempo_range is not None:
        asked.append(astuple(options.tempo_range))
    if options.embedding_model:
        asked.append(options.embedding_model)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def job_id_of(request_id: str) -> str:
    """Return the id of the job that a request makes; the same request always makes the same job.

    The id has the form of a ULID. A request's own id already is one; an idempotency key is hashed
    into one.
    """
    if len(request_id) == LENGTH:
        return f"job_{request_id}"
    number = int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:16], "big")
    return "job_" + "".join(ALPHABET[(number >> 5 * place) & 31] for place in range(LENGTH))
