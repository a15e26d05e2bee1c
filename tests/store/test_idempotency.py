"""Holds on idempotency keys end even if the Redis client swallows a cancellation."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serve_app.store import idempotency
from serve_app.store.client import Store
from serve_app.store.idempotency import Idempotency


async def test_no_key_is_held_for_ever_where_a_cancellation_is_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As asyncio.wait_for, which the client uses, does before Python 3.12."""
    asked = asyncio.Event()

    async def swallowing(*_: Any) -> None:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    store = SimpleNamespace(run=swallowing, keys=SimpleNamespace(idempotency="{}:{}".format))
    monkeypatch.setattr(idempotency, "HOLD_AGAIN_S", 0.0)
    before = asyncio.all_tasks()
    async with Idempotency(cast(Store, store)).held("owner", "key", "request"):
        await asked.wait()
    ended, running = await asyncio.wait(asyncio.all_tasks() - before, timeout=5)
    for task in running:
        task.cancel()
    assert ended
    assert not running
