"""Chores go on after failures and do not stop each other."""

import asyncio

import pytest
from redis.exceptions import ResponseError

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.services.upkeep import Chore, Upkeep

LIMIT_S = 60


async def test_a_failing_and_a_hanging_chore_leave_the_others_alone() -> None:
    rounds, went_on = 0, asyncio.Event()

    async def count() -> None:
        nonlocal rounds
        rounds += 1
        if rounds > 5:
            went_on.set()

    async def fail() -> None:
        raise OSError("away")

    async def hang() -> None:
        await asyncio.Event().wait()

    upkeep = Upkeep(
        [Chore("count", count, 0.01), Chore("fail", fail, 0.01), Chore("hang", hang, 1)]
    )
    upkeep.start()
    async with asyncio.timeout(LIMIT_S):
        await went_on.wait()
    await upkeep.close()
    ended_at = rounds
    await asyncio.sleep(0.05)
    assert rounds == ended_at


async def test_the_log_says_what_a_server_said(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ResponseError("ERR value is not an integer")

    upkeep = Upkeep([Chore("journal", fail, 1)])
    upkeep.start()
    await asyncio.sleep(0)
    await upkeep.close()
    assert caplog.messages == ["journal: ResponseError: ERR value is not an integer"]


async def test_the_log_says_why_a_part_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ServiceUnavailableError("try again") from OSError("No space left on device")

    upkeep = Upkeep([Chore("journal", fail, 1)])
    upkeep.start()
    await asyncio.sleep(0)
    await upkeep.close()
    assert caplog.messages == [
        "journal: ServiceUnavailableError: try again (No space left on device)"
    ]


async def test_only_what_hangs_is_called_stalled() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    came_round = asyncio.Event()

    async def done() -> None:
        came_round.set()

    async def rounds(n: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            for _ in range(n):
                came_round.clear()
                await came_round.wait()

    now = 0.0
    upkeep = Upkeep([Chore("hang", hang, 1), Chore("done", done, 0.01)], lambda: now)
    upkeep.start()
    await rounds(1)
    assert upkeep.stalled() == []
    now = 81.0
    await rounds(2)  # one of them has started and ended since
    assert upkeep.stalled() == ["hang"]
    await upkeep.close()
