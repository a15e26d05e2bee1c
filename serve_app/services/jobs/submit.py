"""Take audio in and make an analysis job of it."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pipelines.analysis.features import from_json
from pipelines.analysis.records import TrackFeatures
from serve_app.domain.errors import (
    BadRequestError,
    JobNotFoundError,
    ServiceUnavailableError,
    UnansweredError,
)
from serve_app.domain.jobs import JobRecord, NewJob
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import ALPHABET, LENGTH, new_ulid
from serve_app.ledger.jobs.queue import Jobs
from serve_app.providers.web.url_guard import InvalidUrlError, UrlGuard
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.intake import UPLOADS, store_body
from serve_app.store.objects import ObjectStore

logger = logging.getLogger(__name__)

WITHDRAW_AGAIN_S = 1.0
WITHDRAW_ATTEMPTS = 900
"""Over 15 minutes and more: after that nothing waits in a lane any longer."""


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What the customer asked for; the same ``request_id`` makes the same job."""

    format: str | None = None
    include_embedding: bool = False
    request_id: str = field(default_factory=new_ulid)

    @property
    def is_repeatable(self) -> bool:
        """Whether the request has a name of its own, so that a repeat finds the same job."""
        return len(self.request_id) != LENGTH


class AnalysisService:
    """Submits analysis jobs and reads them back.

    Invariant: credits are held by the same script that writes the job record, after the body has
    arrived whole; whatever fails before that has cost nothing and left no object behind.
    """

    def __init__(
        self,
        jobs: Jobs,
        objects: ObjectStore,
        assets: AssetsService,
        url_guard: UrlGuard,
        prices: Prices,
    ) -> None:
        self._jobs = jobs
        self._objects = objects
        self._assets = assets
        self._url_guard = url_guard
        self._prices = prices
        self._withdrawals: set[asyncio.Task[None]] = set()

    async def submit_upload(
        self,
        caller: Caller,
        tier: Tier,
        chunks: AsyncIterator[bytes],
        media_type: str,
        options: AnalysisOptions,
    ) -> JobRecord:
        """Store the body and queue its analysis.

        Raises:
            PayloadTooLargeError: The body passed the tier's upload size; nothing was stored.
            BadRequestError: The body is empty.
            InsufficientCreditsError: Nothing was stored.
        """
        job_id = job_id_of(options.request_id)
        key = f"{UPLOADS}/{job_id}"
        stored = await store_body(self._objects, key, chunks, tier)
        return await self._submit_object(
            caller, tier, job_id, key, stored.sha256, media_type, options
        )

    async def submit_asset(
        self, caller: Caller, tier: Tier, asset_id: str, options: AnalysisOptions
    ) -> JobRecord:
        """Queue the analysis of an asset; the job keeps a copy, so the asset may expire meanwhile.

        Raises:
            AssetNotFoundError: Expired, never existed, or another owner's.
            InsufficientCreditsError: Nothing was stored.
        """
        job_id = job_id_of(options.request_id)
        key = f"{UPLOADS}/{job_id}"
        asset = await self._assets.copy(caller, tier, asset_id, key)
        return await self._submit_object(
            caller, tier, job_id, key, asset.sha256, asset.content_type, options
        )

    async def _submit_object(
        self,
        caller: Caller,
        tier: Tier,
        job_id: str,
        key: str,
        sha256: str,
        media_type: str,
        options: AnalysisOptions,
    ) -> JobRecord:
        source = {"kind": "object", "key": key, "sha256": sha256, "media_type": media_type}
        try:
            job = await self._submit(caller, tier, job_id, source, sha256, options)
        except BaseException:
            # A job that was taken in all the same fails without its audio and is refunded, since
            # its id was never told; unless a repeat of the request will ask for it.
            if not (options.is_repeatable and await self._may_exist(caller, job_id)):
                await self._objects.delete(key)
            raise
        if caller.is_test:
            await self._objects.delete(key)
        return job

    async def _may_exist(self, caller: Caller, job_id: str) -> bool:
        try:
            return await self._jobs.get(caller.account, job_id) is not None
        except ServiceUnavailableError:
            return True  # what belongs to no job is swept

    async def submit_url(
        self, caller: Caller, tier: Tier, url: str, options: AnalysisOptions
    ) -> JobRecord:
        """Check the URL's form and queue its fetching and analysis.

        A submission that is not answered is withdrawn behind the request, since the job's id was
        never told; unless a repeat of the request will ask for it.

        Raises:
            BadRequestError: Not a fetchable public HTTP(S) URL.
        """
        try:
            self._url_guard.check(url)
        except InvalidUrlError as error:
            raise BadRequestError(f"url: {error}") from error
        source = {"kind": "url", "url": url, "host": urlsplit(url).hostname}
        job_id = job_id_of(options.request_id)
        try:
            return await self._submit(caller, tier, job_id, source, url, options)
        except (UnansweredError, asyncio.CancelledError):
            if not options.is_repeatable:
                task = asyncio.create_task(self._withdraw(caller.account, job_id))
                self._withdrawals.add(task)
                task.add_done_callback(self._withdrawals.discard)
            raise

    async def _withdraw(self, account: str, job_id: str) -> None:
        for _ in range(WITHDRAW_ATTEMPTS):
            try:
                if not await self._jobs.withdraw(account, job_id):
                    # Faster than the ledger came back: the work was done, and is charged.
                    logger.warning("%s was complete before it could be withdrawn", job_id)
            except ServiceUnavailableError:
                await asyncio.sleep(WITHDRAW_AGAIN_S)
            else:
                return
        logger.error("%s could not be withdrawn; the ledger is away", job_id)

    async def get_job(self, caller: Caller, job_id: str, wait_s: float = 0) -> JobRecord:
        """Read a job, waiting up to ``wait_s`` seconds for its end.

        Raises:
            JobNotFoundError: Expired, never existed, or another owner's.
        """
        if wait_s > 0:
            job = await self._jobs.wait(caller.account, job_id, wait_s)
        else:
            job = await self._jobs.get(caller.account, job_id)
        if job is None:
            raise JobNotFoundError("no such job; jobs expire with their tier's asset lifetime")
        return job

    @staticmethod
    def features_of(job: JobRecord) -> TrackFeatures | None:
        """Give what a job has found; None unless it is complete."""
        return None if job.result is None else from_json(job.result)

    async def _submit(
        self,
        caller: Caller,
        tier: Tier,
        job_id: str,
        source: Mapping[str, Any],
        seed: str,
        options: AnalysisOptions,
    ) -> JobRecord:
        if caller.is_test:
            source = {"kind": "simulated", "seed": seed}
        payload = {
            "source": source,
            "format": options.format,
            "include_embedding": options.include_embedding,
            "max_audio_s": tier.max_audio_s,
            "max_bytes": tier.upload_bytes,
        }
        # A retried request makes the same id; with another body it must not pass for the first.
        what = json.dumps([seed, options.format, options.include_embedding])
        return await self._jobs.submit(
            NewJob(
                job_id=job_id,
                account=caller.account,
                tier=tier.name,
                kind="analysis",
                payload=payload,
                cost=self._prices.analysis,
                fingerprint=hashlib.sha256(what.encode()).hexdigest(),
            )
        )


def job_id_of(request_id: str) -> str:
    """Give the id of the job that a request makes; the same request makes the same one.

    The id has the form of a ULID. A request's own id is one already; what stands for an
    idempotency key is hashed into one.
    """
    if len(request_id) == LENGTH:
        return f"job_{request_id}"
    number = int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:16], "big")
    return "job_" + "".join(ALPHABET[(number >> 5 * place) & 31] for place in range(LENGTH))
