"""A payment is acknowledged only when a replica has it; a replica that takes over is found."""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis import Redis

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.ledger import Ledger
from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedis, LocalRedisError, free_port
from serve_app.store.client import connect
from tests.store.setting import ACCOUNT, small_tiers

pytestmark = pytest.mark.redis


def start_at_a_port(folder: Path) -> tuple[LocalRedis, int]:
    """Start a server that a replica can reach; another process may take a port before it."""
    for attempt in range(10):
        port = free_port()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
        with contextlib.suppress(LocalRedisError):
            return embedded_redis.start(folder / f"{attempt}", extra=options), port
    raise AssertionError("every port was taken")


@pytest.fixture
def pair() -> Iterator[tuple[LocalRedis, LocalRedis]]:
    """A server on a port, and its replica."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afa-")))
        first, port = start_at_a_port(folder)
        stack.callback(first.stop)
        follow = ("--replicaof", "127.0.0.1", str(port))
        second = embedded_redis.start(folder / "two", extra=follow)
        stack.callback(second.stop)
        with Redis.from_url(second.url) as redis:
            deadline = time.monotonic() + 120
            while redis.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield first, second


async def acknowledged(ledger: Ledger, payment_id: str, credits: int) -> int:
    """Top up until a busy replica acknowledges in time; return the packs."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ServiceUnavailableError):
                return (await ledger.topup(ACCOUNT, payment_id, credits)).packs


async def test_payments_wait_for_a_replica(pair: tuple[LocalRedis, LocalRedis]) -> None:
    first, second = pair
    assert second.pid is not None
    store = connect(first.url, shards=4, timeout_s=30)
    ledger = Ledger(store, small_tiers(), topup_replicas=1)
    await ledger.balance(ACCOUNT, "basic")
    assert await acknowledged(ledger, "pay:1", 10) == 10
    with Redis.from_url(second.url) as redis:
        assert redis.exists(store.keys.payment(ACCOUNT, "pay:1"))
    os.kill(second.pid, signal.SIGSTOP)
    try:
        # The second call, which finds the payment booked, does not acknowledge it either.
        for _ in range(2):
            with pytest.raises(ServiceUnavailableError, match="replica"):
                await ledger.topup(ACCOUNT, "pay:2", 20)
    finally:
        os.kill(second.pid, signal.SIGCONT)
    assert await acknowledged(ledger, "pay:2", 20) == 30
    await store.close()


async def test_open_connections_to_a_server_that_became_a_replica_are_left(
    pair: tuple[LocalRedis, LocalRedis],
) -> None:
    first, second = pair
    primary = first

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while some := await source.read(1 << 16):
            target.write(some)
        target.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_unix_connection(urlsplit(primary.url).path)
        await asyncio.gather(copy(reader, behind[1]), copy(behind[0], writer))

    address = await asyncio.start_server(lead, "127.0.0.1", 0)
    port = address.sockets[0].getsockname()[1]
    store = connect(f"redis://127.0.0.1:{port}", shards=4, timeout_s=30)
    ledger = Ledger(store, small_tiers(), topup_replicas=1)
    assert await acknowledged(ledger, "pay:1", 10) == 10
    with Redis.from_url(first.url) as old, Redis.from_url(second.url) as new:
        new.replicaof("NO", "ONE")
        old.replicaof("127.0.0.1", 1)
        primary = second
        ledger = Ledger(store, small_tiers())
        async with asyncio.timeout(20):
            assert await acknowledged(ledger, "pay:2", 20) == 30
        assert new.exists(store.keys.payment(ACCOUNT, "pay:2"))
    await store.close()
    address.close()
    await address.wait_closed()
