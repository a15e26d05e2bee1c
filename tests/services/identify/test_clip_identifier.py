"""One recording through decoding, cascade and enrichment, and how many run at once."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from models.fingerprint.landmarks import Fingerprint
from pipelines.audio.decode import DecodeLimits
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.clip import Clip
from serve_app.domain.errors import ConcurrencyError
from serve_app.domain.identification import Recognition, TempoAndKey
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.keys import Caller
from serve_app.domain.providers import ProviderTerms
from serve_app.ledger.journal import Journal
from serve_app.services.audio.assets import AssetsService
from serve_app.services.audio.audio import AudioAsset, AudioBody
from serve_app.services.charging import Charging
from serve_app.services.identify import clip_identifier
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.cascade import IdentifyCascade
from serve_app.services.identify.clip_identifier import ClipIdentifier, middle
from serve_app.services.identify.enrichment import EnrichmentService
from serve_app.services.identify.identified import Identified
from serve_app.services.identify.identify import IdentifyService
from tests.api.application import Application

CALLER = Caller("key_x", "owner-free", "owner-free", "free", frozenset({"compute"}), is_test=False)
RATE = 100
SHA256 = "00" * 32


class Nothing:
    """A store that has every object and a cache that has none."""

    async def download(self, key: str, path: Path) -> int:
        return await asyncio.to_thread(path.write_bytes, key.encode())

    async def get(self, space: str, key: str) -> bytes | None:
        return None

    async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
        pass


class Waiting:
    """A service that recognises every clip once it is released."""

    name, timeout_s, terms = "remote", 5.0, ProviderTerms("", "")

    def __init__(self) -> None:
        self._asked, self.release = asyncio.Semaphore(0), asyncio.Event()

    async def asked(self, times: int) -> None:
        """Wait until it has been asked this many times."""
        for _ in range(times):
            await self._asked.acquire()

    def accepts(self, clip: Clip) -> bool:
        return True

    async def recognise(self, clip: Clip) -> Recognition | None:
        self._asked.release()
        await self.release.wait()
        return Recognition(TrackIdentity("A", "T", source="remote"), 90)


class Decoder:
    """Returns a ramp of ten minutes and counts how many decode at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_now = self.most = 0

    def __call__(self, path: Path, limits: DecodeLimits) -> Waveform:
        with self._lock:
            self._n_now += 1
            self.most = max(self.most, self._n_now)
        threading.Event().wait(0.02)
        with self._lock:
            self._n_now -= 1
        return Waveform(np.arange(600 * RATE, dtype=np.float32)[None], RATE)


def clip_of(waveform: Waveform) -> Clip:
    nothing = np.zeros(0, np.float32)
    silent = Fingerprint(nothing, nothing, nothing, 0)
    return Clip(waveform.duration_s, silent, silent, b"wav")


async def test_clips_wait_for_services_without_keeping_others_from_being_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder, remote, measured = Decoder(), Waiting(), list[Waveform]()
    monkeypatch.setattr(clip_identifier, "decode", decoder)

    async def measure(waveform: Waveform) -> TempoAndKey:
        measured.append(waveform)
        return TempoAndKey(100.0, 0, 1)

    identifier = ClipIdentifier(
        Nothing(),  # type: ignore[arg-type]  # the rest is not used
        clip_of,
        IdentifyCache(Nothing(), lambda: ""),
        IdentifyCascade([remote], ["remote"]),
        EnrichmentService(),
        measure,
        at_once=1,
    )
    calls = [asyncio.create_task(identifier.identify("a", SHA256, 900)) for _ in range(3)]
    async with asyncio.timeout(30):
        await remote.asked(3)
    assert decoder.most == 1
    remote.release.set()
    for found in await asyncio.gather(*calls):
        assert isinstance(found, Identified)
        assert (found.source_service, found.confidence) == ("remote", 90)
        assert found.enrichment is not None
        assert found.enrichment["bpm"] == 100
    assert [waveform.duration_s for waveform in measured] == [120.0] * 3


def test_the_middle_of_a_long_recording_is_measured() -> None:
    long = Waveform(np.arange(500, dtype=np.float32)[None], RATE)
    cut = middle(long, 2)
    np.testing.assert_array_equal(cut.samples, np.arange(150, 350, dtype=np.float32)[None])
    assert not np.shares_memory(cut.samples, long.samples)
    assert middle(long, 5) is long


class Slow:
    """A backend that answers when it is released."""

    def __init__(self) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified:
        self.begun.set()
        await self.release.wait()
        return Identified({"local": "no_match"})


@pytest.mark.redis
async def test_a_full_service_reads_no_body_and_holds_nothing(api: Application) -> None:
    stores, backend = api.stores, Slow()
    service = IdentifyService(
        backend,
        IdentifyCache(Nothing(), lambda: ""),
        stores.limits,
        stores.ledger,
        Charging(stores.ledger),
        stores.prices,
        max_in_flight=1,
    )
    n_read = 0

    async def body() -> AsyncGenerator[bytes, None]:
        nonlocal n_read
        n_read += 1
        yield b"sound"

    tier = stores.tiers["free"]
    audio = AudioBody(stores.objects, body(), tier)

    assets = AssetsService(stores.assets, stores.objects)
    asset = AudioAsset(stores.objects, assets, f"afa_{'0' * 26}", CALLER, tier)
    first = asyncio.create_task(service.identify(CALLER, tier, audio, "a"))
    await backend.begun.wait()
    with pytest.raises(ConcurrencyError):
        await service.identify(CALLER, tier, audio, "b")
    with pytest.raises(ConcurrencyError):
        await service.identify(CALLER, tier, asset, "c")
    assert n_read == 1
    backend.release.set()
    assert (await first).credits_used == 3
    kinds = [entry.kind for entry in await Journal(stores.ledger_store).entries("owner-free")]
    assert kinds.count("reserve") == 1
    assert "void" not in kinds
