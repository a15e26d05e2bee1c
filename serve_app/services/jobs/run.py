"""Run one claimed job to the end of its stage: fetch an address, or decode once and analyse.

Invariant: whatever happens, the claim ends by `finish`, by `fail`, or by its lease running out;
only a claim that still holds its lease changes the job or removes its audio.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, TypeVar

from models.rhythm.tempo import TempoRange
from pipelines.analysis.features import to_json
from pipelines.analysis.merge import merge
from pipelines.analysis.records import EmbeddingResult, MoodResult, SpectralResult, TrackFeatures
from pipelines.audio.decode import DecodeLimits
from pipelines.audio.waveform import AudioError, Waveform
from serve_app.checkpoints.choice import models_name
from serve_app.domain.errors import AfaError, RetryableError, ServiceUnavailableError
from serve_app.domain.keys import TEST_NAMESPACE
from serve_app.domain.telemetry.facts import about, pseudonym
from serve_app.domain.telemetry.metrics import (
    JOB_ATTEMPTS_LOST,
    JOB_SECONDS,
    JOBS_ENDED,
    count_charged,
)
from serve_app.domain.telemetry.spans import context_of, span
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import AnalysisJob, Claim, ObjectSource, SimulatedSource
from serve_app.library.edit import Edit, Heard, where_there
from serve_app.library.track import LibraryTrack
from serve_app.library.writer import LibraryWriter
from serve_app.providers.tags.identity import TAGS
from serve_app.providers.tags.reader import Tags, read_tags
from serve_app.services.audio.decoding import counted_decoding
from serve_app.services.audio.intake import UPLOADS
from serve_app.services.audio.sources import SourceFetcher
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.services.simulation.features import simulated_features
from serve_app.store.objects import ObjectStore

logger = logging.getLogger(__name__)

HEARTBEAT_S = 5.0
MIN_AUDIO_S = 1.0
FINISH_TRIES = 20
FINISH_AGAIN_S = 1.0
READ_BYTES = 1 << 20
OUR_FAULT = "the analysis failed on our side; you were not charged"


@dataclass(frozen=True, slots=True)
class Analysed:
    """The three results, and the checkpoints used for them.

    Attributes:
        models: Role to ids, joined by ``+``; empty if unknown.
    """

    spectral: SpectralResult
    mood: MoodResult
    embedding: EmbeddingResult
    models: Mapping[str, str] = field(default_factory=dict)


class AnalysisBackend(Protocol):
    """The model deployments, as the runner sees them."""

    async def analyse(
        self, waveform: Waveform, tempo_range: TempoRange | None = None, embedding_model: str = ""
    ) -> Analysed:
        """Run the three analyses concurrently.

        Args:
            waveform: The whole track.
            tempo_range: Range that the tempo must be in.
            embedding_model: Model that makes the embedding; "" for the default.

        Raises:
            AudioError: The audio is not fit for analysis.
            ServiceUnavailableError: There is no memory for the named model.
            Exception: Anything else is a fault of ours, worth a retry.
        """
        ...


Decode = Callable[[Path, DecodeLimits], Waveform]
Done = TypeVar("Done")


class LeaseLostError(Exception):
    """Another worker has the job now, or it was cancelled."""


class JobRunner:
    """Runs claims; one instance serves many at once."""

    def __init__(
        self,
        jobs: Jobs,
        objects: ObjectStore,
        sources: SourceFetcher,
        backend: AnalysisBackend,
        decode: Decode,
        features: FeatureCache,
        library: LibraryWriter,
    ) -> None:
        self._jobs = jobs
        self._objects = objects
        self._sources = sources
        self._backend = backend
        self._decode = decode
        self._features = features
        self._library = library

    async def run(self, claim: Claim) -> None:
        """Bring the claimed job to an end, or give it back."""
        with about(
            trace_id=claim.work.trace_id,
            job_id=claim.job_id,
            account=pseudonym(claim.account),
            key="test" if claim.account.startswith(TEST_NAMESPACE) else "live",
            route="job",
        ):
            began = time.monotonic()
            asked = context_of(claim.work.trace_id, claim.work.span_id)
            with span("job", asked, job_id=claim.job_id, attempt=claim.attempt) as ended:
                end = await self._end(claim)
                ended.set_attributes({"afa.outcome": end.outcome, "afa.code": end.code})
            taken_s = time.monotonic() - began
            JOB_SECONDS.record(taken_s, stage=claim.work.stage, outcome=end.outcome)
            if end.outcome == "again":
                JOB_ATTEMPTS_LOST.record(1, code=end.code)
            elif end.outcome in ("complete", "failed"):
                JOBS_ENDED.record(1, outcome=end.outcome, code=end.code)
            logger.info(
                "attempt %d %s after %.3f s",
                claim.attempt,
                end.outcome,
                taken_s,
                extra={"stage": claim.work.stage, "code": end.code},
            )

    async def _end(self, claim: Claim) -> "End":
        progress = Progress()
        work = asyncio.create_task(self._work(claim, progress))
        beat = asyncio.create_task(self._keep_alive(claim, progress))
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise LeaseLostError(claim.job_id)
            done = work.result()
            if isinstance(done, ObjectSource):
                await self._persist(self._jobs.pass_on, claim, replace(claim.work, source=done))
                return End("passed_on")
            if not await self._persist(self._jobs.finish, claim, done):
                return End("lost")
            count_charged(claim.cost)
            await self._discard_upload(claim)
            return End("complete")
        except LeaseLostError:
            logger.warning("lost the lease of %s", claim.job_id)
            return End("lost")
        except AudioError as error:
            return await self._fail(claim, error.code, str(error))
        except RetryableError as error:
            return await self._fail(claim, error.code, error.message, retryable=True)
        except AfaError as error:
            return await self._fail(claim, error.code, error.message)
        except Exception as error:
            logger.warning("job %s attempt %d failed", claim.job_id, claim.attempt, exc_info=error)
            return await self._fail(claim, "internal_error", OUR_FAULT, retryable=True)
        finally:
            work.cancel()
            beat.cancel()
            await asyncio.gather(work, beat, return_exceptions=True)

    @staticmethod
    async def _persist(
        end: Callable[[Claim, Done], Awaitable[bool]], claim: Claim, done: Done
    ) -> bool:
        for _ in range(FINISH_TRIES - 1):
            with suppress(ServiceUnavailableError):
                return await end(claim, done)
            await asyncio.sleep(FINISH_AGAIN_S)
        return await end(claim, done)

    async def _work(self, claim: Claim, progress: "Progress") -> bytes | ObjectSource:
        if claim.work.stage == "fetch":
            return await self._fetch(claim, progress)
        return await self._analyse(claim, progress)

    async def _fetch(self, claim: Claim, progress: "Progress") -> ObjectSource:
        """Store the audio where the next stage, on whichever worker, can fetch it."""
        key = f"{UPLOADS}/{claim.job_id}"
        with progress.step(0.05, "fetch"), TemporaryDirectory(prefix="afa-fetch-") as folder:
            path = Path(folder) / "audio"
            await self._sources.fetch(claim.work.source, path, claim.work.max_bytes)
            stored = await self._objects.put_stream(key, _blocks(path))
        return ObjectSource(key, stored.sha256)

    async def _analyse(self, claim: Claim, progress: "Progress") -> bytes:
        job = claim.work
        made_by = ""
        if isinstance(job.source, SimulatedSource):
            features = simulated_features(job.source.seed, tempo_range_of(job))
        else:
            features, made_by = await self._compute(job, progress)
            if job.library_id and made_by:
                heard = Heard(features, made_by)
                named = where_there(partial(named_by_tags, features))
                await self._library.write(Edit(job.library_id, named, heard))
        if job.cache_key:
            # A catalog track: the cache gets everything, the job's record what look-ups return.
            await self._features.put(job.cache_key, features, made_by)
            features = features.outline()
        if not job.include_embedding:
            features = replace(features, embedding=[])
        return to_json(features)

    async def _compute(self, job: AnalysisJob, progress: "Progress") -> tuple[TrackFeatures, str]:
        with TemporaryDirectory(prefix="afa-job-") as folder:
            path = Path(folder) / "audio"
            with progress.step(0.05, "fetch"):
                await self._sources.fetch(job.source, path, job.max_bytes)
            limits = DecodeLimits(max_seconds=job.max_audio_s, min_seconds=MIN_AUDIO_S)
            with progress.step(0.15, "decode"), counted_decoding():
                waveform = await asyncio.to_thread(self._decode, path, limits)
            tags = await asyncio.to_thread(tags_of, path)
        with progress.step(0.3, "analyse"):
            found = await self._backend.analyse(waveform, tempo_range_of(job), job.embedding_model)
        with progress.step(0.95, "finish"):
            features = merge(waveform.duration_s, found.spectral, found.mood, found.embedding)
            features = replace(features, artist=tags.artist, title=tags.title)
        return features, models_name(found.models) if found.models else ""

    async def _keep_alive(self, claim: Claim, progress: "Progress") -> None:
        is_ours = True
        while is_ours:
            # While the ledger is unavailable no one can take the job; its fence decides at the end.
            with suppress(ServiceUnavailableError):
                is_ours = await self._jobs.heartbeat(claim, progress.fraction, progress.stage)
            if is_ours:
                await progress.wait_for_change(HEARTBEAT_S)

    async def _fail(
        self, claim: Claim, code: str, message: str, *, retryable: bool = False
    ) -> "End":
        if await self._jobs.fail(claim, code, message, retryable):
            await self._discard_upload(claim)
            return End("failed", code)
        return End("again", code) if retryable else End("lost", code)

    async def _discard_upload(self, claim: Claim) -> None:
        match claim.work.source:
            case ObjectSource(key) | SimulatedSource(key=key) if key.startswith(f"{UPLOADS}/"):
                await self._objects.delete(key)


def named_by_tags(features: TrackFeatures, track: LibraryTrack) -> LibraryTrack:
    """Name a track of the library from its file's tags, unless its title is already known."""
    who = track.identity
    if who.title or not features.title:
        return track
    sources = {**track.sources, "title": TAGS}
    if features.artist and not who.artist:
        sources["artist"] = TAGS
    named = replace(who, title=features.title, artist=who.artist or features.artist)
    return replace(track, identity=named, sources=sources)


def tags_of(path: Path) -> Tags:
    """Return a file's tags; none if unreadable, since the audio may still be readable."""
    try:
        return read_tags(path)
    except OSError:
        return Tags()


def tempo_range_of(job: AnalysisJob) -> TempoRange | None:
    """Return the requested tempo range."""
    return None if job.tempo_range is None else TempoRange(*job.tempo_range)


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while block := await asyncio.to_thread(file.read, READ_BYTES):
            yield block


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended; ``code`` is the error's."""

    outcome: Literal["complete", "passed_on", "failed", "again", "lost"]
    code: str = ""


class Progress:
    """How far a job is; a change wakes the heartbeat at once."""

    def __init__(self) -> None:
        self.fraction = 0.0
        self.stage = "start"
        self._changed = asyncio.Event()

    @contextmanager
    def step(self, fraction: float, stage: str) -> Iterator[None]:
        """Report the body as the next stage, in a span of that name."""
        self.fraction, self.stage = fraction, stage
        self._changed.set()
        with span(stage):
            yield

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return at the next `step`, at the latest after ``timeout_s`` seconds."""
        with suppress(TimeoutError):
            # wait_for of Python 3.11 loses a cancellation that arrives together with the change.
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()
