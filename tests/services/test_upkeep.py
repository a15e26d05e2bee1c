"""Chores go on through failures and do not stop each other."""

import asyncio

from serve_app.services.upkeep import Chore, Upkeep


async def test_a_failing_and_a_hanging_chore_leave_the_others_alone() -> None:
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        rounds += 1

    async def fail() -> None:
        raise OSError("away")

    async def hang() -> None:
        await asyncio.Event().wait()

    upkeep = Upkeep(
        [Chore("count", count, 0.01), Chore("fail", fail, 0.01), Chore("hang", hang, 1)]
    )
    upkeep.start()
    await asyncio.sleep(0.2)
    assert rounds > 5
    await upkeep.close()
    ended_at = rounds
    await asyncio.sleep(0.05)
    assert rounds == ended_at


async def test_only_what_hangs_is_called_stalled() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def done() -> None:
        return

    now = 0.0
    upkeep = Upkeep([Chore("hang", hang, 1), Chore("done", done, 0.01)], lambda: now)
    upkeep.start()
    await asyncio.sleep(0.05)
    assert upkeep.stalled() == []
    now = 81.0
    await asyncio.sleep(0.05)
    assert upkeep.stalled() == ["hang"]
    await upkeep.close()
