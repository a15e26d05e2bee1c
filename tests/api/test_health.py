"""The health routes as load balancers and operators see them."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serve_app.composition.options import StoreOptions
from serve_app.services import readiness
from serve_app.services.readiness import CACHE_S
from tests.api.application import Application, open_application

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that is running answer in time, however busy the machine."""
    monkeypatch.setattr(readiness, "PROBE_TIMEOUT_S", 60.0)


async def is_away() -> None:
    raise ConnectionError


@pytest.fixture
async def degraded(api_stores: StoreOptions, demo_catalog: Path) -> AsyncIterator[Application]:
    async with open_application(api_stores, demo_catalog, probes={"spectral": is_away}) as opened:
        yield opened


async def test_requests_are_taken_while_a_model_is_away(degraded: Application) -> None:
    asker = degraded.client(None)
    answer = await asker.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "degraded",
        "checks": {"ledger": "ok", "objects": "ok", "spectral": "ConnectionError"},
        "degraded": ["spectral"],
    }
    strict = await asker.get("/readyz?strict=1")
    assert strict.status_code == 503
    assert strict.json()["status"] == "unavailable"


@pytest.mark.parametrize(
    ("fault", "mend"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    ],
)
async def test_no_request_is_sent_to_a_ledger_that_takes_no_writes(
    api_stores: StoreOptions, demo_catalog: Path, fault: str, mend: str
) -> None:
    async with open_application(api_stores, demo_catalog, with_worker=False) as opened:
        ledger, asker = opened.stores.ledger_store, opened.client(None)
        assert (await asker.get("/readyz")).status_code == 200
        await ledger.command(*fault.split())
        try:
            await asyncio.sleep(CACHE_S)
            answer = await asker.get("/readyz")
        finally:
            await ledger.command(*mend.split())
    assert answer.status_code == 503
    assert answer.json()["degraded"] == ["ledger"]


async def test_a_full_disk_is_503_and_costs_nothing(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(api.stores.objects, "put_stream", full)
    before = await api.remaining("pro")
    answer = await api.client(raises=False).post("/v1/bpm", content=b"RIFF" + bytes(1000))
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"] == "service_unavailable"
    assert "disk" in answer.json()["message"]
    assert int(answer.headers["Retry-After"]) > 0
    assert await api.remaining("pro") == before
