"""Vectors of many files at once, and nothing else of them.

Invariant: the price of all files is held before any is heard, and only those that got a vector are
charged. What is wrong with one file is said of that file; the others are answered.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from pipelines.analysis.records import EmbeddingResult
from pipelines.audio.decode import DecodeLimits
from pipelines.audio.waveform import AudioError, Waveform
from serve_app.domain.credits import Balance
from serve_app.domain.errors import AfaError, InternalError, UrlFetchError
from serve_app.domain.keys import Caller
from serve_app.domain.prices import Prices
from serve_app.domain.tiers import Tier
from serve_app.ledger.jobs.types import ObjectSource, Source
from serve_app.services.audio.audio import Audio
from serve_app.services.audio.refusal import Refusal, accept
from serve_app.services.audio.sources import SourceFetcher
from serve_app.services.charging import Charging
from serve_app.services.gate import Gate

logger = logging.getLogger(__name__)

MIN_AUDIO_S = 1.0
MAX_REQUESTS = 32
"""That one ingress replica works on at once."""
AT_ONCE = 4
"""Files of one request."""
OUR_FAULT = "this file failed on our side; it was not charged"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of norm 1 (zeros for silence), the model that made it, and how long the audio is."""

    vector: list[float]
    model: str
    duration_s: float


class EmbedBackend(Protocol):
    """The analysis workers, as the service sees them."""

    async def embed(
        self, source: Source, *, max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded | Refusal:
        """Fetch, decode and embed; ``model`` is "" for the chosen one.

        Raises:
            ServiceUnavailableError: No replica is free or answers in time, or none has memory for
                the model.
        """
        ...


class EmbeddingBackend(Protocol):
    """The embedding deployment, as the worker sees it."""

    async def embed(self, waveform: Waveform, model: str = "") -> EmbeddingResult:
        """Embed a track; ``model`` is "" for the chosen one."""
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
    """A file of a request, by the name that its sender knows."""

    name: str
    audio: Audio


@dataclass(frozen=True, slots=True)
class FileVector:
    """What became of a file: a vector, or why there is none."""

    name: str
    found: Embedded | AfaError


@dataclass(frozen=True, slots=True)
class EmbedAnswer:
    """Vectors in the order of the files, and what they cost."""

    files: list[FileVector]
    credits_used: int
    balance: Balance


class EmbedService:
    """Embeds the files of a request."""

    def __init__(self, backend: EmbedBackend, charging: Charging, prices: Prices) -> None:
        self._gate = Gate(MAX_REQUESTS)
        self._backend = backend
        self._charging = charging
        self._prices = prices

    async def embed(
        self, caller: Caller, tier: Tier, files: Sequence[SentFile], model: str, request_id: str
    ) -> EmbedAnswer:
        """Embed all files.

        Raises:
            InsufficientCreditsError: Not all are covered; nothing was charged.
            ServiceUnavailableError: Too much work is waiting; nothing was charged.
        """
        price = self._prices.embed
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(file: SentFile) -> FileVector:
            async with turns:
                try:
                    return FileVector(file.name, await self._embed(tier, file.audio, model))
                except AfaError as error:
                    return FileVector(file.name, error)
                except Exception:
                    logger.exception("a file could not be embedded")
                    return FileVector(file.name, InternalError(OUR_FAULT))

        with self._gate.entered():
            cost = price * len(files)
            async with self._charging.hold(caller, cost, request_id) as hold:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(file)) for file in files]
                answers = [task.result() for task in tasks]
                n_embedded = sum(isinstance(answer.found, Embedded) for answer in answers)
                hold.final_cost = price * n_embedded
        return EmbedAnswer(answers, hold.charged, hold.balance)

    async def _embed(self, tier: Tier, audio: Audio, model: str) -> Embedded:
        async with audio.stored() as stored:
            return accept(
                await self._backend.embed(
                    ObjectSource(stored.key, stored.sha256),
                    max_audio_s=tier.max_audio_s,
                    max_bytes=tier.upload_bytes,
                    model=model,
                )
            )
