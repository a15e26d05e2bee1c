"""A full service says so at the door."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from pipelines.analysis.records import QuickFeatures
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.ledger.jobs.types import Source
from serve_app.ledger.journal import Journal
from serve_app.services.audio.audio import AudioBody
from serve_app.services.bpm import BpmService
from serve_app.services.charging import Charging
from serve_app.services.gate import Gate
from tests.api.application import Application

CALLER = Caller("key_x", "owner-free", "owner-free", "free", frozenset({"compute"}), is_test=False)


def test_a_gate_lets_in_as_many_as_it_may_and_again_when_they_have_left() -> None:
    gate = Gate(2, retry_after_s=7)
    with gate.entered():
        with gate.entered(), pytest.raises(ServiceUnavailableError) as refused, gate.entered():
            pass
        assert refused.value.retry_after_s == 7
        with gate.entered():
            pass
    with pytest.raises(ValueError, match="ours"), gate.entered():
        raise ValueError("ours")
    with gate.entered(), gate.entered():
        pass


class Waiting:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()

    async def analyse(
        self, source: Source, *, max_audio_s: float, max_bytes: int, with_key: bool, **_: object
    ) -> QuickFeatures:
        self.begun.set()
        await self.release.wait()
        return QuickFeatures(120.0, 0.9, -1, -1, "")


@pytest.mark.redis
async def test_a_full_tempo_service_reads_no_body_and_holds_nothing(api: Application) -> None:
    stores, backend = api.stores, Waiting()
    service = BpmService(
        backend,
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
    first = asyncio.create_task(service.detect(CALLER, tier, audio, "a"))
    await backend.begun.wait()
    with pytest.raises(ServiceUnavailableError):
        await service.detect(CALLER, tier, audio, "b")
    assert n_read == 1
    backend.release.set()
    assert (await first).credits_used == 2
    kinds = [entry.kind for entry in await Journal(stores.ledger_store).entries("owner-free")]
    assert kinds.count("reserve") == 1
    assert "void" not in kinds
