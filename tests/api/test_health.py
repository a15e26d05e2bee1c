"""What a load balancer and an operator hear."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serve_app.composition.options import StoreOptions
from tests.api.application import Application, open_application

pytestmark = pytest.mark.redis


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
