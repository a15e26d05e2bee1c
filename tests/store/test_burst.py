"""More calls at once than a role has connections wait for one, and are none of them refused."""

import asyncio

import pytest

from serve_app.local.embedded_redis import LocalRedis
from serve_app.store.client import MAX_CALLS, connect

pytestmark = pytest.mark.redis


async def test_a_burst_is_answered_whole(redis_server: LocalRedis) -> None:
    store = connect(redis_server.url, timeout_s=30)
    calls = (store.command("PING") for _ in range(3 * MAX_CALLS))
    assert all(await asyncio.gather(*calls))
    connected = await store.command("INFO", "clients")
    assert connected["connected_clients"] <= MAX_CALLS + 8
    await store.close()
