"""Tempo and key on the CPU while the caller waits: decode once, two small models, no job."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from ray import serve

from models.rhythm.tempo import TempoRange
from pipelines.analysis.records import QuickFeatures
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import AudioError
from serve_app.composition.options import ModelOptions, StoreOptions, UrlOptions
from serve_app.deployments.following import QUICK_ROLES, follow, quick_exchange
from serve_app.deployments.placement import assigned_cpus
from serve_app.deployments.telemetry import tell_operators
from serve_app.domain.errors import UrlFetchError
from serve_app.ledger.jobs.types import source_from_json
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.services.audio.decoding import counted_decoding
from serve_app.services.audio.refusal import Refusal
from serve_app.services.audio.sources import SourceFetcher
from serve_app.store.objects import ObjectStore

MIN_AUDIO_S = 1.0
CONCURRENT = 4
"""Files that a replica works on at once; others wait inside it, see `services.bpm`."""


@serve.deployment
class Bpm:
    """Fetches, decodes and analyses; unsuitable audio is answered with a refusal, not an error."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it; loading must not block its loop
        self, options: ModelOptions, stores: StoreOptions, urls: UrlOptions
    ) -> None:
        tell_operators()
        torch.set_num_threads(assigned_cpus())
        self._turns = asyncio.Semaphore(CONCURRENT)
        self._sources = SourceFetcher(
            ObjectStore(stores.object_store),
            AudioUrlFetcher(urls.guard()),
        )
        self._exchange = quick_exchange(options)
        self._follower = await follow(options, stores, QUICK_ROLES, self._exchange)

    async def analyse(
        self,
        source: dict[str, Any],
        max_audio_s: float,
        max_bytes: int,
        with_key: bool,
        tempo_range: TempoRange | None = None,
    ) -> QuickFeatures | Refusal:
        """See `QuickBackend`."""
        limits = DecodeLimits(max_seconds=max_audio_s, min_seconds=MIN_AUDIO_S)
        try:
            async with self._turns:
                with TemporaryDirectory(prefix="afa-bpm-") as folder:
                    path = Path(folder) / "audio"
                    await self._sources.fetch(source_from_json(source), path, max_bytes)
                    return await asyncio.to_thread(
                        self._run, path, limits, with_key=with_key, tempo_range=tempo_range
                    )
        except AudioError as error:
            return Refusal(error.code, str(error))
        except UrlFetchError as error:
            return Refusal(error.code, error.message)

    def _run(
        self,
        path: Path,
        limits: DecodeLimits,
        *,
        with_key: bool,
        tempo_range: TempoRange | None,
    ) -> QuickFeatures:
        with counted_decoding():
            waveform = decode(path, limits)
        return self._exchange.current.analyse(waveform, with_key=with_key, tempo_range=tempo_range)

    async def ready(self) -> bool:
        """Answer once the models are loaded."""
        return True
