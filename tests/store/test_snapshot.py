"""Errors for a Redis that gives no snapshot."""

from pathlib import Path

import pytest
from redis import Redis

from serve_app.local import embedded_redis
from serve_app.store.snapshot import SnapshotError, open_snapshot

pytestmark = pytest.mark.redis


async def test_a_redis_that_gives_no_snapshot_is_named(tmp_path: Path) -> None:
    server = embedded_redis.start(tmp_path, extra=("--appendonly", "no"))
    try:
        with Redis.from_url(server.url) as redis:
            redis.acl_setuser("default", enabled=True, nopass=True, commands=["-sync"])
        with pytest.raises(SnapshotError, match="no permissions"):
            async with open_snapshot(server.url):
                pass
    finally:
        server.stop()
    for url, told in {
        server.url: "gave no snapshot",
        "redis+cluster://127.0.0.1:7000": "no one moment",
    }.items():
        with pytest.raises(SnapshotError, match=told):
            async with open_snapshot(url):
                pass
