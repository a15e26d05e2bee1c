"""More calls at once than a role has connections wait for one, and are none of them refused."""

import asyncio

import pytest

from serve_app.store.client import MAX_CALLS, Store

pytestmark = pytest.mark.redis


async def test_a_burst_is_answered_whole(live_store: Store) -> None:
    calls = (live_store.command("PING") for _ in range(3 * MAX_CALLS))
    assert all(await asyncio.gather(*calls))
    connected = await live_store.command("INFO", "clients")
    assert connected["connected_clients"] <= MAX_CALLS + 8
