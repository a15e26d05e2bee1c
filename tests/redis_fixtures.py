"""A real Redis for every test that wants one."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from serve_app.domain.tiers import Tiers
from serve_app.ledger.jobs import webhooks
from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import Store, connect
from tests.store.setting import SHARDS, Setting, open_setting, small_tiers

BUSY_MACHINE_S = 60.0
"""Long enough for a round of webhooks to wait for all it sends, however slow the machine."""


@pytest.fixture(scope="session")
def redis_folder() -> Iterator[Path]:
    # Not pytest's own folder: a socket's path may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def redis_server(redis_folder: Path) -> Iterator[LocalRedis]:
    """One server for all tests that do not kill it; kept in memory only."""
    server = embedded_redis.start(redis_folder, extra=("--appendonly", "no"))
    yield server
    server.stop()


@pytest.fixture
def tiers() -> Tiers:
    return small_tiers()


@pytest.fixture
async def setting(
    redis_server: LocalRedis, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Setting]:
    """An empty ledger role whose scripts see a clock that stands still."""
    monkeypatch.setattr(webhooks, "ROUND_S", BUSY_MACHINE_S)
    async with open_setting(redis_server.url) as setting:
        yield setting


@pytest.fixture
async def live_store(redis_server: LocalRedis) -> AsyncIterator[Store]:
    """An empty role whose scripts see the server's own clock."""
    store = connect(redis_server.url, shards=SHARDS, timeout_s=5)
    await store.command("FLUSHALL")
    yield store
    await store.close()
