"""A ledger fault that needs an operator does not keep the service from starting."""

import asyncio
from pathlib import Path

import httpx
import pytest

from configs.tables import load_table
from serve_app.domain.tiers import Tiers
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.local import embedded_redis
from serve_app.store.client import connect
from tests.system.conftest import running_service

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.slow]


async def forget_a_payment(data_dir: Path) -> None:
    server = embedded_redis.start(data_dir)
    store = connect(server.url, timeout_s=10)
    await store.claim_shards()
    ledger, balance = Ledger(store, Tiers(load_table("tiers"))), store.keys.balance("bob")
    await ledger.topup("bob", "pay:1", 100)
    before = await store.command("GET", balance)
    await ledger.topup("bob", "pay:2", 100)
    await store.command("SET", balance, before)
    assert not (await Journal(store).audit("bob")).is_clean
    await store.close()
    server.stop()


async def lose_what_is_archived(data_dir: Path) -> None:
    server = embedded_redis.start(data_dir)
    store = connect(server.url, timeout_s=10)
    await store.claim_shards()
    await Ledger(store, Tiers(load_table("tiers"))).topup("bob", "pay:1", 100)
    archive = Archive((data_dir / "journal").as_uri())
    assert await Exporter(store, archive).export() == 1
    await store.command("FLUSHALL")
    await store.claim_shards()
    await store.close()
    server.stop()


def test_a_cut_ledger_is_told_and_the_service_starts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data_dir = tmp_path_factory.mktemp("afa")
    asyncio.run(lose_what_is_archived(data_dir))
    with running_service(data_dir) as service:
        state = httpx.get(f"{service.url}/readyz", timeout=60).json()
        assert state["checks"]["journal"] == "JournalStoppedError"
        assert state["degraded"] == ["journal"]


def test_a_broken_rule_is_told_and_the_service_starts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data_dir = tmp_path_factory.mktemp("afa")
    asyncio.run(forget_a_payment(data_dir))
    with running_service(data_dir) as service:
        assert "the ledger's audit found a broken rule" in service.up_output
        state = httpx.get(f"{service.url}/readyz", timeout=60).json()
        assert state["degraded"] == ["audit"]
