"""Typed adapters around Serve's untyped handles."""

import asyncio
from typing import Any, cast

import ray
from ray.serve.handle import DeploymentHandle

from pipelines.audio import Waveform
from pipelines.records import EmbeddingResult, MoodResult, SpectralResult


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


async def probe(handle: DeploymentHandle[Any]) -> None:
    """Return when a replica of the deployment answers."""
    await handle.ready.remote()
