"""If a role has more calls at once than connections, calls wait for one and none is refused."""

import asyncio
import subprocess
import sys

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


FEW_DESCRIPTORS = """
import asyncio, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from serve_app.store.client import connect

async def main():
    store = connect(sys.argv[1], timeout_s=30)
    said = await asyncio.gather(*(store.command("PING") for _ in range(400)))
    assert said == [True] * 400, said
    os.close(os.open(os.devnull, os.O_RDONLY))
    await store.close()

asyncio.run(main())
"""


def test_a_burst_leaves_descriptors_for_files(redis_server: LocalRedis) -> None:
    subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS, redis_server.url], check=True)
