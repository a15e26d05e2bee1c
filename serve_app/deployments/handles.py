"""Typed adapters around Serve's untyped handles."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from models.checkpoints.cards import UnreadableTextError
from models.rhythm.tempo import TempoRange
from pipelines.analysis.records import QuickFeatures
from serve_app.domain.errors import BadRequestError, ServiceUnavailableError
from serve_app.ledger.jobs.types import Source, source_to_json
from serve_app.services.audio.refusal import Refusal
from serve_app.services.embedding import Embedded
from serve_app.services.identify.identified import Identified
from serve_app.services.readiness import AuditMismatchError, JournalStoppedError

QUICK_LIMIT_S = 60.0
IDENTIFY_LIMIT_S = 30.0
EMBED_LIMIT_S = 110.0
"""Less than the two minutes after which Serve gives up on a request."""
TEXT_LIMIT_S = 60.0
"""The first text waits until the text tower is loaded."""
BUSY = "too much work is waiting; try again"
ENDED = "the process that worked on this ended; try again, you were not charged"


@asynccontextmanager
async def answered_within(limit_s: float) -> AsyncIterator[None]:
    """Ask the caller to try again if a replica is busy, takes too long or dies.

    Raises:
        ServiceUnavailableError: It is, does or did.
    """
    try:
        async with asyncio.timeout(limit_s):
            yield
    except RayActorError as error:
        raise ServiceUnavailableError(ENDED, 5) from error
    except (BackPressureError, DeploymentUnavailableError, TimeoutError) as error:
        raise ServiceUnavailableError(BUSY, 5) from error


async def call_analyse(handle: DeploymentHandle[Any], *args: Any) -> Any:
    """Call ``analyse`` on a deployment."""
    return await handle.analyse.remote(*args)


async def call_analyse_within(handle: DeploymentHandle[Any], *args: Any) -> Any:
    """Call ``analyse_within`` on the spectral deployment."""
    return await handle.analyse_within.remote(*args)


class RayQuick:
    """The CPU deployment behind `QuickBackend`."""

    def __init__(self, bpm: DeploymentHandle[Any]) -> None:
        self._bpm = bpm

    async def analyse(
        self,
        source: Source,
        *,
        max_audio_s: float,
        max_bytes: int,
        with_key: bool,
        tempo_range: TempoRange | None = None,
    ) -> QuickFeatures | Refusal:
        """See `QuickBackend`."""
        plain = source_to_json(source)
        call = call_analyse(self._bpm, plain, max_audio_s, max_bytes, with_key, tempo_range)
        async with answered_within(QUICK_LIMIT_S):
            return cast("QuickFeatures | Refusal", await call)


class RayIdentify:
    """The CPU deployment behind `IdentifyBackend`."""

    def __init__(self, identify: DeploymentHandle[Any]) -> None:
        self._identify = identify

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified | Refusal:
        """See `IdentifyBackend`."""
        async with answered_within(IDENTIFY_LIMIT_S):
            found = await self._identify.identify.remote(key, sha256, max_audio_s)
        return cast("Identified | Refusal", found)


class RayEmbed:
    """The analysis workers behind `EmbedBackend`."""

    def __init__(self, worker: DeploymentHandle[Any]) -> None:
        self._worker = worker

    async def embed(
        self, source: Source, *, max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded | Refusal:
        """See `EmbedBackend`."""
        plain = source_to_json(source)
        async with answered_within(EMBED_LIMIT_S):
            found = await self._worker.embed.remote(plain, max_audio_s, max_bytes, model)
        return cast("Embedded | Refusal", found)


class RayTexts:
    """The embedding deployment behind `TextBackend`."""

    def __init__(self, embedding: DeploymentHandle[Any]) -> None:
        self._embedding = embedding

    async def embed_text(self, text: str, model: str) -> list[float]:
        """See `TextBackend`."""
        try:
            async with answered_within(TEXT_LIMIT_S):
                found = await self._embedding.embed_text.remote(text, model)
        except UnreadableTextError as error:
            raise BadRequestError(
                f"text: the model {model!r} has no tokens for some of these characters or words; "
                "use others"
            ) from error
        return cast("list[float]", found)


async def probe(handle: DeploymentHandle[Any]) -> None:
    """Wait until a replica of the deployment answers."""
    await handle.ready.remote()


async def probe_audit(keeper: DeploymentHandle[Any]) -> None:
    """Check that the Keeper answers and its last audit of the ledger was clean."""
    if not await keeper.audited.remote():
        raise AuditMismatchError


async def probe_journal(keeper: DeploymentHandle[Any]) -> None:
    """Check that the Keeper answers and that ledger and archive agree."""
    if not await keeper.archives.remote():
        raise JournalStoppedError
