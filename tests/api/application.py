"""The whole application in this process: real Redis, real stores, real decoding; only the networks
behind the model deployments are replaced, by deterministic functions of the audio."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from unittest import mock

import httpx
import numpy as np
from fastapi import FastAPI

from configs.tables import load_table
from models.rhythm.tempo import TempoRange
from models.vibenet import ATTRIBUTES
from pipelines.analysis.records import (
    Chord,
    EmbeddingResult,
    MoodResult,
    MoodTag,
    QuickFeatures,
    Section,
    Segment,
    SpectralResult,
    TempoAlternative,
)
from pipelines.analysis.tags.repeatability import NETWORKS
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import AudioError, Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.api.asgi import create_app
from serve_app.api.services import ApiServices
from serve_app.composition.options import ModelOptions, StoreOptions, TrackOptions, UrlOptions
from serve_app.composition.services import Surroundings, compose_services
from serve_app.composition.stores import Stores, open_stores
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.identification import Recogniser, TempoAndKey
from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs.queue import BLOCK_S
from serve_app.ledger.jobs.types import Stage
from serve_app.library.library import Library
from serve_app.library.writer import LibraryWriter
from serve_app.providers.fingerprints.manifest import generation_of
from serve_app.providers.web.audio_url import AudioUrlFetcher
from serve_app.services.audio.refusal import Refusal
from serve_app.services.audio.sources import Source, SourceFetcher
from serve_app.services.embedding import Embedder
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.cascade import IdentifyCascade
from serve_app.services.identify.clip_identifier import ClipIdentifier
from serve_app.services.identify.enrichment import EnrichmentService
from serve_app.services.jobs.run import Analysed, JobRunner
from serve_app.services.lookup.feature_cache import FeatureCache
from serve_app.store.client import Store, connect
from serve_app.store.keys import FETCHES, lane_key

PUBLIC_URL = "http://afa.test"
MODELS = {"beats": "fake", "key": "fake", "embedding": "fake"}
KINDS = ("free", "basic", "pro", "scale")
N_SLOTS = 6
WAKE: dict[Stage, str] = {
    "analyse": lane_key("wake"),
    "fetch": lane_key("wake", FETCHES),
}
installed = cache(entry_points)
"""Read once, not for each application."""


@dataclass
class FakeBackend:
    """Stands in for the three model deployments."""

    n_calls: int = 0
    delay_s: float = 0.0
    fault: Exception | None = None
    gate: asyncio.Event | None = None

    async def embed(self, waveform: Waveform, model: str = "") -> EmbeddingResult:
        if self.fault is not None:
            raise self.fault
        return EmbeddingResult([1.0] + [0.0] * 767, [], {"embedding": model or "fake"})

    async def analyse(
        self, waveform: Waveform, tempo_range: TempoRange | None = None, embedding_model: str = ""
    ) -> Analysed:
        self.n_calls += 1
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.delay_s)
        if self.fault is not None:
            raise self.fault
        level = float(np.abs(waveform.samples).mean())
        beats = [round(0.5 * n, 3) for n in range(int(waveform.duration_s / 0.5))]
        spectral = SpectralResult(
            tempo=120.0 if tempo_range is None else tempo_range.high,
            tempo_confidence=0.9,
            beats=beats,
            downbeats=beats[::4],
            time_signature=4,
            time_signature_confidence=0.8,
            key=9,
            mode=0,
            key_confidence=0.7,
            loudness_lufs=-10.0 - level,
            loudness_range_lu=5.0,
            true_peak_dbtp=-1.0,
            mix_in_s=0.5,
            mix_out_s=waveform.duration_s - 1,
            segments=[Segment(0.0, 1.0, 0.5, -20.0, -10.0, 0.1, [0.1] * 12, [1.0] * 12)],
            sections=[
                Section(0.0, waveform.duration_s, 0.5, -10.0, 120.0, 0.9, 9, 0.7, 0, 0.7, 4, 0.8)
            ],
            models={"beats": "fake", "key": "fake"},
            tempo_alternatives=[TempoAlternative(60.0, 0.1)],
            chords=[Chord(0.0, 2.0, 9, 0, 4, 0.8), Chord(2.0, 2.0, -1, -1, -1, 0.9)],
            tuning_cents=-12.34,
        )
        mood = MoodResult(
            *(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
            [MoodTag("calm", 0.9)],
            NETWORKS,
            spread=dict.fromkeys(ATTRIBUTES, 0.1),
            n_parts=4,
        )
        vector = await self.embed(waveform, embedding_model)
        return Analysed(spectral, mood, vector, MODELS)


class FakeTexts:
    """Stands in for the text tower: a direction for each text."""

    async def embed_text(self, text: str, model: str) -> list[float]:
        return [0.0, 1.0] + [0.0] * 766


@dataclass
class FakeQuick:
    """Stands in for the Bpm deployment: really fetches and decodes, then says 120 and A minor."""

    sources: SourceFetcher
    n_calls: int = 0
    fault: Exception | None = None

    async def analyse(
        self,
        source: Source,
        *,
        max_audio_s: float,
        max_bytes: int,
        with_key: bool,
        tempo_range: TempoRange | None = None,
    ) -> QuickFeatures | Refusal:
        self.n_calls += 1
        if self.fault is not None:
            raise self.fault
        limits = DecodeLimits(max_seconds=max_audio_s, min_seconds=1.0)
        try:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "audio"
                await self.sources.fetch(source, path, max_bytes)
                await asyncio.to_thread(decode, path, limits)
        except AudioError as error:
            return Refusal(error.code, str(error))
        key = (9, 0, "8A") if with_key else (-1, -1, "")
        return QuickFeatures(120.0 if tempo_range is None else tempo_range.high, 0.9, *key)


@dataclass
class Application:
    """The application, what it is made of, and keys to it."""

    app: FastAPI
    services: ApiServices
    stores: Stores
    backend: FakeBackend
    quick: FakeQuick
    keys: dict[str, str]
    library: Library
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def client(self, who: str | None = "pro", *, raises: bool = True) -> httpx.AsyncClient:
        """A client with the key ``free``, ``basic``, ``pro``, ``scale`` or ``test``, or none."""
        headers = {} if who is None else {"Authorization": f"Bearer {self.keys[who]}"}
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=raises),
            base_url=PUBLIC_URL,
            headers=headers,
            timeout=60,
        )
        self.clients.append(client)
        return client

    async def issue(self, owner: str, tier: str, **options: Any) -> str:
        """Make a key and keep it under the owner's name."""
        self.keys[owner] = (await self.stores.accounts.issue(owner, tier, **options)).key
        return self.keys[owner]

    async def remaining(self, who: str) -> int:
        """Credits of the owner of that name."""
        return (await self.stores.ledger.balance(f"owner-{who}", who)).remaining

    async def no_upload_stays(self) -> None:
        """Wait until all uploads are deleted, which happens after a job is reported as ended."""
        async with asyncio.timeout(30):
            while [one.key async for one in self.stores.objects.scan("uploads/")]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def store_options(ledger_url: str, cache_url: str, folder: Path) -> StoreOptions:
    """Options for stores on these servers and in this folder."""
    return StoreOptions(
        ledger_url=ledger_url,
        cache_url=cache_url,
        object_store=(folder / "objects").absolute().as_uri(),
        key_pepper="pepper",
    )


@asynccontextmanager
async def open_application(
    options: StoreOptions,
    catalog_dir: Path,
    *,
    lookup_wait_s: float = 60.0,
    with_worker: bool = True,
    public_url: str = PUBLIC_URL,
    batch_cached_free: bool = False,
    library_adding: Literal["accounts", "operator"] = "accounts",
    rate: int | None = None,
    recognisers: Sequence[Recogniser] = (),
    fingerprint_dir: Path | None = None,
    backend: FakeBackend | None = None,
    probes: Mapping[str, Callable[[], Awaitable[object]]] | None = None,
    model_dir: Path | None = None,
    timeout_s: float = 30.0,
) -> AsyncIterator[Application]:
    """Empty the servers, build the application, and run a worker for it.

    Args:
        options: See `store_options`.
        catalog_dir: An imported catalog.
        lookup_wait_s: How long a look-up waits for its job.
        with_worker: Whether jobs are run at all.
        public_url: The service's URL in links.
        batch_cached_free: The setting of that name.
        library_adding: The setting of that name.
        recognisers: The identification services, in order.
        fingerprint_dir: The index that the recognisers ask; in the catalog's folder by default.
        backend: What analyses; a fake by default.
        probes: The deployments that `/readyz` asks.
        model_dir: Folder of checkpoints and the operator's own cards; none by default.
        rate: Requests a minute for every class and tier, instead of the real limits.
        timeout_s: How long the servers may take to answer: longer than the service waits for them,
            because a busy machine may not let them run.
    """

    def patiently(url: str, **how: Any) -> Store:
        return connect(url, **how | {"timeout_s": timeout_s})

    with mock.patch("serve_app.composition.stores.connect", patiently):
        stores = open_stores(options)
    if rate is not None:
        table = load_table("tiers")
        for row in table.values():
            row["rate"] = dict.fromkeys(row["rate"], rate)
        stores = replace(stores, tiers=Tiers(table))
    await stores.ledger_store.command("FLUSHALL")
    await stores.cache_store.command("FLUSHALL")
    async for info in stores.objects.scan():
        await stores.objects.delete(info.key)
    urls = UrlOptions(ports=tuple(range(1, 65536)), networks=("127.0.0.0/8",))
    fetcher = AudioUrlFetcher(urls.guard())
    sources = SourceFetcher(stores.objects, fetcher)
    backend, quick = backend or FakeBackend(), FakeQuick(sources)

    async def measure(waveform: Waveform) -> TempoAndKey:
        return TempoAndKey(120.0, 9, 0)

    fingerprint_dir = fingerprint_dir or catalog_dir / "fingerprints"
    generation = partial(generation_of, fingerprint_dir)
    identifier = ClipIdentifier(
        stores.objects,
        Fingerprinter().make_clip,
        IdentifyCache(stores.cache, generation),
        IdentifyCascade(recognisers, [one.name for one in recognisers]),
        EnrichmentService(),
        measure,
    )
    library_dir = TemporaryDirectory()
    library = Library(f"file://{library_dir.name}/shared", Path(library_dir.name))
    with mock.patch("serve_app.providers.installed.entry_points", installed):
        services = compose_services(
            stores,
            Surroundings(
                public_url=public_url,
                urls=urls,
                tracks=TrackOptions(
                    catalog_dir=catalog_dir,
                    fingerprint_dir=fingerprint_dir,
                    batch_cached_free=batch_cached_free,
                ),
                quick=quick,
                identify=identifier,
                embed=Embedder(sources, backend, decode, at_once=2),
                texts=FakeTexts(),
                options=ModelOptions(
                    model_dir=model_dir or Path(library_dir.name) / "models", named_mib=16
                ),
                models=MODELS,
                library=library,
                library_adding=library_adding,
                probes=probes or {},
                lookup_wait_s=lookup_wait_s,
            ),
        )
    keys = {kind: (await stores.accounts.issue(f"owner-{kind}", kind)).key for kind in KINDS}
    keys["test"] = (await stores.accounts.issue("owner-pro", test=True)).key
    application = Application(create_app(services), services, stores, backend, quick, keys, library)
    runner = JobRunner(
        *(stores.jobs, stores.objects, sources, backend, decode),
        FeatureCache(stores.cache, str),
        LibraryWriter(library),
    )
    stopping = asyncio.Event()
    worker = asyncio.create_task(work(stores, runner, stopping)) if with_worker else None
    try:
        yield application
    finally:
        stopping.set()
        while worker is not None and not worker.done():
            # Wake slots that wait for work; cancel only what a test has left hanging.
            for wake in WAKE.values():
                await stores.ledger_store.command("LPUSH", wake, *[1] * N_SLOTS)
            _, hanging = await asyncio.wait({worker}, timeout=2)
            if hanging:
                worker.cancel()
        for client in application.clients:
            await client.aclose()
        await stores.close()
        library.close()
        library_dir.cleanup()


async def work(stores: Stores, runner: JobRunner, stopping: asyncio.Event) -> None:
    """Run jobs two at a time, and fetch four URLs at the same time."""

    async def slot(number: int, stage: Stage) -> None:
        while not stopping.is_set():
            with suppress(ServiceUnavailableError):
                claim = await stores.jobs.claim(f"worker-{number}", stage=stage)
                if claim is not None:
                    await runner.run(claim)
                else:
                    await stores.ledger_store.command("BLPOP", WAKE[stage], BLOCK_S)

    stages: list[Stage] = ["analyse"] * 2 + ["fetch"] * (N_SLOTS - 2)
    await asyncio.gather(*(slot(number, stage) for number, stage in enumerate(stages)))
