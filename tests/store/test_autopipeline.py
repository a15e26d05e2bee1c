"""Commands of one turn of the event loop share a round trip, but fail one by one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.local import embedded_redis
from serve_app.store.client import Store, connect

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded_redis.LocalRedis]:
    found = embedded_redis.start(tmp_path_factory.mktemp("autopipeline"), role="cache")
    yield found
    found.stop()


@pytest.fixture
async def store(server: embedded_redis.LocalRedis) -> AsyncIterator[Store]:
    opened = connect(server.url, autopipelines=True, timeout_s=30)
    await opened.command("FLUSHALL")
    yield opened
    await opened.close()


class Trips:
    n = 0


@pytest.fixture
def trips() -> Iterator[Trips]:
    counted, send = Trips(), AbstractConnection.send_packed_command

    async def count(connection: AbstractConnection, *given: Any, **named: Any) -> None:
        counted.n += 1
        await send(connection, *given, **named)

    with mock.patch.object(AbstractConnection, "send_packed_command", count):
        yield counted


async def test_commands_of_one_turn_share_a_trip(store: Store, trips: Trips) -> None:
    await store.command("SET", "a", 1)
    await store.command("SET", "b", 2)
    assert trips.n == 2
    assert await asyncio.gather(*(store.command("GET", key) for key in "abc")) == [b"1", b"2", None]
    assert trips.n == 3


async def test_scripts_are_loaded_on_first_use(store: Store) -> None:
    await store.command("SCRIPT", "FLUSH")
    rates, found = await asyncio.gather(
        store.run("gcra", ["rl:x"], [60, 60_000, 60]), store.command("GET", "a")
    )
    assert rates[:2] == [1, 59]
    assert found is None


async def test_one_error_spoils_nobody_else(store: Store) -> None:
    await store.command("SET", "a", "text")
    answers = await asyncio.gather(
        *(store.command("INCR", "a"), store.command("GET", "a")), return_exceptions=True
    )
    assert isinstance(answers[0], ResponseError)
    assert answers[1] == b"text"


async def test_a_caller_that_goes_leaves_the_others_their_answers(store: Store) -> None:
    await store.command("SET", "a", 1)
    gone = asyncio.create_task(store.command("GET", "a"))
    stays = asyncio.create_task(store.command("GET", "a"))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == b"1"
    assert await store.command("GET", "a") == b"1"


async def test_all_are_told_when_the_server_is_away(tmp_path: Path) -> None:
    store = connect(f"unix://{tmp_path}/nobody.sock", autopipelines=True)
    answers = await asyncio.gather(
        *(store.command("GET", "a"), store.run("now", [])), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [ServiceUnavailableError] * 2
    await store.close()
