"""Typed adapters around Serve's untyped handles."""

import asyncio
from typing import Any, cast

import ray
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from pipelines.audio import Waveform
from pipelines.records import EmbeddingResult, MoodResult, QuickFeatures, SpectralResult
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.services.bpm import Refusal
from serve_app.services.identify import Identified
from serve_app.services.track_audio import Source

QUICK_LIMIT_S = 60.0
IDENTIFY_LIMIT_S = 30.0
BUSY = "too much work is waiting; try again"


class RayBackend:
    """The model deployments behind `AnalysisBackend`."""

    def __init__(
        self,
        spectral: DeploymentHandle[Any],
        mood: DeploymentHandle[Any],
        embedding: DeploymentHandle[Any],
    ) -> None:
        self._spectral = spectral
        self._mood = mood
        self._embedding = embedding

    async def analyse(
        self, waveform: Waveform
    ) -> tuple[SpectralResult, MoodResult, EmbeddingResult]:
        """Put the samples into the object store once and analyse them side by side."""
        pcm = await asyncio.to_thread(ray.put, waveform.samples)
        calls = [
            asyncio.ensure_future(_call(handle, [pcm], waveform.sample_rate))
            for handle in (self._spectral, self._mood, self._embedding)
        ]
        try:
            spectral, mood, embedding = await asyncio.gather(*calls)
        finally:
            for call in calls:
                call.cancel()
        return (
            cast("SpectralResult", spectral),
            cast("MoodResult", mood),
            cast("EmbeddingResult", embedding),
        )


async def _call(handle: DeploymentHandle[Any], *args: Any) -> Any:
    return await handle.analyse.remote(*args)


class RayQuick:
    """The CPU deployment behind `QuickBackend`."""

    def __init__(self, bpm: DeploymentHandle[Any]) -> None:
        self._bpm = bpm

    async def analyse(
        self, source: Source, *, max_audio_s: float, max_bytes: int, with_key: bool
    ) -> QuickFeatures | Refusal:
        """See `QuickBackend`."""
        call = _call(self._bpm, dict(source), max_audio_s, max_bytes, with_key)
        try:
            async with asyncio.timeout(QUICK_LIMIT_S):
                return cast("QuickFeatures | Refusal", await call)
        except (BackPressureError, DeploymentUnavailableError, TimeoutError) as error:
            raise ServiceUnavailableError(BUSY, 5) from error


class RayIdentify:
    """The CPU deployment behind `IdentifyBackend`."""

    def __init__(self, identify: DeploymentHandle[Any]) -> None:
        self._identify = identify

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified | Refusal:
        """See `IdentifyBackend`."""
        try:
            async with asyncio.timeout(IDENTIFY_LIMIT_S):
                found = await self._identify.identify.remote(key, sha256, max_audio_s)
        except (BackPressureError, DeploymentUnavailableError, TimeoutError) as error:
            raise ServiceUnavailableError(BUSY, 5) from error
        return cast("Identified | Refusal", found)


async def probe(handle: DeploymentHandle[Any]) -> None:
    """Return when a replica of the deployment answers."""
    await handle.ready.remote()
