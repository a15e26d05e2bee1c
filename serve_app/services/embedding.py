"""Returns the vectors of many files in one request, and nothing else of them.

Invariant: a request takes a working place only once all its files have arrived. The price of all
is held before any is analysed, and only those that got a vector are charged. A fault of one file is
reported for that file; the others are answered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from pipelines.analysis.records import EmbeddingResult
from pipelines.audio.decode import DecodeLimits
from pipelines.audio.waveform import AudioError, Waveform
from serve_app.domain.credits import Balance
from serve_app.domain.errors import AfaError, InternalError, RetryableError, UrlFetchError
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.ledger.jobs.types import ObjectSource, Source
from serve_app.services.audio.audio import Audio, StoredAudio
from serve_app.services.audio.refusal import Refusal, accept
from serve_app.services.audio.sources import SourceFetcher
from serve_app.services.charging import Charging
from serve_app.services.gate import FETCHES, Gate

logger = logging.getLogger(__name__)

MIN_AUDIO_S = 1.0
MAX_IN_FLIGHT = 32
"""Requests that one ingress replica works on at once."""
AT_ONCE = 4
"""Files of one request analysed at once; `FETCHES` are fetched at once, so that none waits."""
OUR_FAULT = "this file failed on our side; it was not charged"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of norm 1 (zeros for silence), the model that made it, and the audio's length."""

    vector: list[float]
    model: str
    duration_s: float


class EmbedBackend(Protocol):
    """The analysis workers, as the service sees them."""

    async def embed(
        self, source: Source, *, max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded | Refusal:
        """Fetch, decode and embed; ``model`` is "" for the default.

        Raises:
            ServiceUnavailableError: No replica is free, answers in time, or has memory for
                the model.
        """
        ...


class EmbeddingBackend(Protocol):
    """The embedding deployment, as the worker sees it."""

    async def embed(self, waveform: Waveform, model: str = "") -> EmbeddingResult:
        """Embed a track; ``model`` is "" for the default."""
        ...


class Embedder:
    """Fetches, decodes and embeds in a worker, a few files at once."""

    def __init__(
        self,
        sources: SourceFetcher,
        backend: EmbeddingBackend,
        decode: Callable[[Path, DecodeLimits], Waveform],
        at_once: int,
    ) -> None:
        self._sources = sources
        self._backend = backend
        self._decode = decode
        self._turns = asyncio.Semaphore(at_once)

    async def embed(
        self, source: Source, *, max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded | Refusal:
        """See `EmbedBackend`."""
        limits = DecodeLimits(max_seconds=max_audio_s, min_seconds=MIN_AUDIO_S)
        try:
            async with self._turns:
                with TemporaryDirectory(prefix="afa-embed-") as folder:
                    path = Path(folder) / "audio"
                    await self._sources.fetch(source, path, max_bytes)
                    waveform = await asyncio.to_thread(self._decode, path, limits)
                found = await self._backend.embed(waveform, model)
        except AudioError as error:
            return Refusal(error.code, str(error))
        except UrlFetchError as error:
            return Refusal(error.code, error.message)
        return Embedded(found.vector, found.models["embedding"], waveform.duration_s)


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file of a request, under the sender's name for it."""

    name: str
    audio: Audio


@dataclass(frozen=True, slots=True)
class FileVector:
    """The outcome for a file: a vector, or why there is none."""

    name: str
    found: Embedded | AfaError


@dataclass(frozen=True, slots=True)
class EmbedAnswer:
    """Vectors in the order of the files, and their cost."""

    files: list[FileVector]
    credits_used: int
    balance: Balance


class EmbedService:
    """Embeds the files of a request."""

    def __init__(
        self,
        backend: EmbedBackend,
        charging: Charging,
        prices: Prices,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._gate = Gate(max_in_flight)
        self._backend = backend
        self._charging = charging
        self._prices = prices

    async def embed(
        self, caller: Caller, tier: Tier, files: Sequence[SentFile], model: str, request_id: str
    ) -> EmbedAnswer:
        """Embed all files.

        Raises:
            InsufficientCreditsError: The balance does not cover all files; nothing was charged.
            ConcurrencyError: Too many of the caller's uploads or requests are in progress; nothing
                was charged.
            ServiceUnavailableError: Too many uploads or requests are in progress, or the store is
                unavailable; nothing was charged.
        """
        self._gate.check(caller.owner, tier.name)
        async with AsyncExitStack() as kept:

            async def take(file: SentFile) -> StoredAudio | AfaError:
                try:
                    return await kept.enter_async_context(file.audio.stored())
                except RetryableError:
                    raise  # the file is not to blame
                except AfaError as error:
                    return error

            async def hear(audio: StoredAudio | AfaError) -> Embedded | AfaError:
                if isinstance(audio, AfaError):
                    return audio
                return await self._embed(tier, audio, model)

            taken = await each(take, files, FETCHES)
            cost = self._prices.embed * len(files)
            with self._gate.entered(caller.owner, tier.name):
                async with self._charging.hold(caller, cost, request_id) as hold:
                    found = await each(hear, taken, AT_ONCE)
                    n_embedded = sum(isinstance(one, Embedded) for one in found)
                    hold.final_cost = self._prices.embed * n_embedded
        answers = [FileVector(file.name, one) for file, one in zip(files, found, strict=True)]
        return EmbedAnswer(answers, hold.charged, hold.balance)

    async def _embed(self, tier: Tier, audio: StoredAudio, model: str) -> Embedded | AfaError:
        try:
            return accept(
                await self._backend.embed(
                    ObjectSource(audio.key, audio.sha256),
                    max_audio_s=tier.max_audio_s,
                    max_bytes=tier.upload_bytes,
                    model=model,
                )
            )
        except AfaError as error:
            return error
        except Exception:
            logger.exception("a file could not be embedded")
            return InternalError(OUR_FAULT)


async def each(work: Callable[[T], Awaitable[R]], items: Sequence[T], at_once: int) -> list[R]:
    """Do the work for every item, ``at_once`` at a time; the first error ends it."""
    turns = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with turns:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
