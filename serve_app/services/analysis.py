"""Take audio in and make an analysis job of it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from serve_app.domain.errors import BadRequestError, JobNotFoundError, PayloadTooLargeError
from serve_app.domain.jobs import JobRecord, NewJob
from serve_app.domain.keys import Caller
from serve_app.domain.object_ports import ObjectStorePort, TooLargeError
from serve_app.domain.ports_store import JobsPort
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.domain.ulid import new_ulid
from serve_app.providers.audio_url import InvalidUrlError, UrlGuard


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What the customer asked for."""

    format: str | None = None
    include_embedding: bool = False


class AnalysisService:
    """Submits analysis jobs and reads them back.

    Invariant: credits are held by the same script that writes the job record, after the body has
    arrived whole; whatever fails before that has cost nothing and left no object behind.
    """

    def __init__(
        self, jobs: JobsPort, objects: ObjectStorePort, url_guard: UrlGuard, prices: Prices
    ) -> None:
        self._jobs = jobs
        self._objects = objects
        self._url_guard = url_guard
        self._prices = prices

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
        job_id = f"job_{new_ulid()}"
        key = f"uploads/{job_id}"
        try:
            stored = await self._objects.put_stream(key, chunks, max_bytes=tier.upload_bytes)
        except TooLargeError as error:
            raise PayloadTooLargeError(
                f"the upload is larger than the {tier.upload_bytes} bytes your tier allows"
            ) from error
        try:
            if stored.size_bytes == 0:
                raise BadRequestError("the body is empty; send the raw audio bytes")
            source = {
                "kind": "object",
                "key": key,
                "sha256": stored.sha256,
                "media_type": media_type,
            }
            return await self._submit(caller, tier, job_id, source, options)
        except Exception:
            await self._objects.delete(key)
            raise

    async def submit_url(
        self, caller: Caller, tier: Tier, url: str, options: AnalysisOptions
    ) -> JobRecord:
        """Check the URL's form and queue its fetching and analysis.

        Raises:
            BadRequestError: Not a fetchable public HTTP(S) URL.
        """
        try:
            self._url_guard.check(url)
        except InvalidUrlError as error:
            raise BadRequestError(f"url: {error}") from error
        source = {"kind": "url", "url": url, "host": urlsplit(url).hostname}
        return await self._submit(caller, tier, f"job_{new_ulid()}", source, options)

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

    async def _submit(
        self,
        caller: Caller,
        tier: Tier,
        job_id: str,
        source: Mapping[str, str | None],
        options: AnalysisOptions,
    ) -> JobRecord:
        payload = {
            "source": dict(source),
            "format": options.format,
            "include_embedding": options.include_embedding,
            "max_audio_s": tier.max_audio_s,
            "max_bytes": tier.upload_bytes,
        }
        return await self._jobs.submit(
            NewJob(
                job_id=job_id,
                account=caller.account,
                tier=tier.name,
                kind="analysis",
                payload=payload,
                cost=self._prices.analysis,
            )
        )
