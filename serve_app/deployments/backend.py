"""The model deployments, as the analysis worker uses them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import ray
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from models.rhythm.tempo import TempoRange
from pipelines.analysis.excerpt import Excerpt
from pipelines.analysis.records import EmbeddingResult
from pipelines.audio.waveform import Samples, Waveform
from pipelines.batching.batcher import DeviceFaultError, DeviceGoneError, QueueFullError
from serve_app.checkpoints.shelf import ShelfFullError
from serve_app.deployments.handles import call_analyse, call_analyse_within
from serve_app.deployments.model_server import Answer
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.services.jobs.run import Analysed

logger = logging.getLogger(__name__)

T = TypeVar("T")

REPLACED_LIMIT_S = 180.0
"""Serve notices a broken replica after three failed health checks; then a new one must load."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 4.0
SHELF_S = 30
"""Seconds after which to retry a model for which there was no memory."""


class RayBackend:
    """The model deployments behind `AnalysisBackend`."""

    def __init__(
        self,
        spectral: DeploymentHandle[Any],
        mood: DeploymentHandle[Any],
        embedding: DeploymentHandle[Any] | None,
        excerpt: Excerpt | None,
    ) -> None:
        """Use the deployments; without ``embedding``, ``mood`` is a `MoodAndEmbedding`.

        With ``excerpt``, mood and embedding are computed only from that part.
        """
        self._excerpt = excerpt
        self._handles = [spectral, mood] if embedding is None else [spectral, mood, embedding]

    async def analyse(
        self, waveform: Waveform, tempo_range: TempoRange | None = None, embedding_model: str = ""
    ) -> Analysed:
        """Put the samples into the object store once and run all analyses in parallel.

        The whole track has been decoded, for its tempo and key, so an excerpt is cut from it here.
        Arguments as for `AnalysisBackend`.

        Raises:
            AudioError: The audio is not fit for analysis.
            DeviceFaultError: Two devices broke during this track.
            ServiceUnavailableError: There is no memory for the named model.
        """
        pcm = await asyncio.to_thread(_put, waveform)
        heard = pcm
        if self._excerpt is not None:
            heard = await asyncio.to_thread(_put, self._excerpt.take(waveform))
        attempts = [
            partial(call_analyse, handle, [ref], waveform.sample_rate)
            for handle, ref in zip(self._handles, (pcm, heard, heard), strict=False)
        ]
        attempts[-1] = partial(attempts[-1], embedding_model)
        if tempo_range is not None:
            attempts[0] = partial(
                call_analyse_within, self._handles[0], [pcm], waveform.sample_rate, tempo_range
            )
        calls = [asyncio.ensure_future(retry_on_another_replica(attempt)) for attempt in attempts]
        try:
            answers = cast("list[Answer[Any]]", await asyncio.gather(*calls))
        except ShelfFullError as error:
            raise ServiceUnavailableError(str(error), SHELF_S) from error
        finally:
            for call in calls:
                call.cancel()
        spectral, *others = (answer.result for answer in answers)
        mood, embedding = others if len(others) == 2 else others[0]
        models = {role: ids for answer in answers for role, ids in answer.models.items()}
        if self._excerpt is not None:
            mood = self._excerpt.mark(mood)
            models |= self._excerpt.named()
        return Analysed(spectral, mood, embedding, models)

    async def embed(self, waveform: Waveform, model: str = "") -> EmbeddingResult:
        """Return the embedding alone; arguments and errors as in `analyse`."""
        heard = waveform if self._excerpt is None else self._excerpt.take(waveform)
        pcm = await asyncio.to_thread(_put, heard)
        try:
            answer: Answer[Any] = await retry_on_another_replica(
                partial(call_analyse, self._handles[-1], [pcm], heard.sample_rate, model)
            )
        except ShelfFullError as error:
            raise ServiceUnavailableError(str(error), SHELF_S) from error
        both = answer.result if isinstance(answer.result, tuple) else (answer.result,)
        return cast("EmbeddingResult", both[-1])


def _put(waveform: Waveform) -> "ray.ObjectRef[Samples]":
    """Put samples into the object store, which takes contiguous arrays without pickling them."""
    return ray.put(np.ascontiguousarray(waveform.samples))


async def retry_on_another_replica(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call that another replica answers if the first one cannot.

    A replica with a broken device refuses everything until Serve has replaced it, and a full one
    until it has room; neither has begun the work, so the track is not at fault. A track during
    which a device breaks gets one more attempt.

    Raises:
        DeviceFaultError: Two devices broke during it.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + REPLACED_LIMIT_S
    faults_left, pause_s = 1, FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except (DeviceGoneError, QueueFullError, BackPressureError) as error:
            if loop.time() > give_up_s:
                raise
            logger.info("waiting for another replica: %s", type(error).__name__)
        except DeviceFaultError as error:
            if not faults_left:
                raise
            faults_left -= 1
            logger.warning("a device broke under a track; trying another: %s", error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
