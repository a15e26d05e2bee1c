"""Redis is down, slow or back: charging fails within a second, the cache never fails."""

import asyncio
import os
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop
from redis.exceptions import ResponseError

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import NewJob
from serve_app.ledger.ledger import Ledger
from serve_app.store import in_time
from serve_app.store.accounts import Accounts
from serve_app.store.assets import Assets
from serve_app.store.cache import Cache
from serve_app.store.client import Store, connect
from serve_app.store.idempotency import Idempotency
from serve_app.store.in_time import waited_s
from serve_app.store.limits import Limits
from tests.soak.power import Victim
from tests.store.setting import ACCOUNT, PAYER, small_tiers, some_work

pytestmark = pytest.mark.redis

T = TypeVar("T")
ANSWER_S = 3.0
"""A second is allowed; a busy machine takes longer."""
BACK_S = 30.0


@pytest.fixture
def victim() -> Iterator[Victim]:
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    victim = Victim(folder)
    victim.start()
    yield victim
    victim.stop()
    shutil.rmtree(folder)


@pytest.fixture
async def store(victim: Victim) -> AsyncIterator[Store]:
    store = connect(victim.url, shards=4)
    yield store
    await store.close()


async def refusal_s(call) -> float:  # type: ignore[no-untyped-def]
    began = time.monotonic() - waited_s()
    with pytest.raises(ServiceUnavailableError) as caught:
        await call
    assert caught.value.retry_after_s >= 1
    return time.monotonic() - waited_s() - began


async def served(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: on a busy machine a store may seem down once more."""
    while True:
        try:
            return await ask()
        except ServiceUnavailableError as refused:
            await asyncio.sleep(refused.retry_after_s)


async def back_after_s(ledger: Ledger) -> float:
    began = time.monotonic()
    while True:
        try:
            await ledger.balance(ACCOUNT, "basic")
        except ServiceUnavailableError:
            await asyncio.sleep(0.05)
        else:
            return time.monotonic() - began


async def test_dead_ledger_refuses_at_once_and_comes_back(victim: Victim, store: Store) -> None:
    ledger, jobs = Ledger(store, small_tiers()), Jobs(store, small_tiers())
    await asyncio.gather(*(served(partial(ledger.reserve, PAYER, f"h{n}", 1)) for n in range(20)))
    victim.kill()
    job = NewJob("j1", ACCOUNT, "basic", some_work(), 10)
    for call in (
        ledger.reserve(PAYER, "a", 1),
        ledger.commit(ACCOUNT, "h0"),
        ledger.count_hit(ACCOUNT, "basic"),
        jobs.submit(job),
        jobs.get(ACCOUNT, "j1"),
    ):
        assert await refusal_s(call) < ANSWER_S
    assert not await store.ping()
    victim.start()
    assert await back_after_s(ledger) < BACK_S
    balance = await served(partial(ledger.balance, ACCOUNT))
    assert (balance.remaining, balance.held, balance.open_jobs) == (40, 20, 0)
    await served(partial(jobs.submit, job))
    await jobs.close()


async def test_stopped_ledger_refuses_in_time(victim: Victim, store: Store) -> None:
    ledger = Ledger(store, small_tiers())
    await served(partial(ledger.balance, ACCOUNT, "basic"))
    assert victim.server is not None
    assert victim.server.pid is not None
    os.kill(victim.server.pid, signal.SIGSTOP)
    try:
        slow = [refusal_s(ledger.reserve(PAYER, f"s{n}", 1)) for n in range(5)]
        assert max(await asyncio.gather(*slow)) < ANSWER_S
    finally:
        os.kill(victim.server.pid, signal.SIGCONT)
    assert await back_after_s(ledger) < BACK_S
    # Holds that were made but not answered are found under their ids and can be given back.
    for number in range(5):
        await served(partial(ledger.reserve, PAYER, f"s{number}", 1))
        await served(partial(ledger.void, ACCOUNT, f"s{number}"))
    assert (await served(partial(ledger.balance, ACCOUNT))).remaining == 60


async def test_what_comes_before_a_charge_refuses_in_time(victim: Victim, store: Store) -> None:
    assets, table = Assets(store), Idempotency(store)
    assert await served(partial(assets.get, "bob", "afa_x")) is None
    assert victim.server is not None
    assert victim.server.pid is not None
    os.kill(victim.server.pid, signal.SIGSTOP)
    try:
        assert await refusal_s(assets.get("bob", "afa_x")) < ANSWER_S
        assert await refusal_s(assets.of_track("bob", "isrc:x")) < ANSWER_S
        assert await refusal_s(table.begin("bob", "k", "print")) < ANSWER_S
    finally:
        os.kill(victim.server.pid, signal.SIGCONT)


async def test_remembered_keys_work_without_the_ledger(victim: Victim, store: Store) -> None:
    accounts = Accounts(store, "pepper", small_tiers())
    issued = await served(partial(accounts.issue, "bob", "pro"))
    assert await served(partial(accounts.authenticate, issued.key)) is not None
    assert await accounts.authenticate("afa_live_junk") is None
    other = Accounts(store, "pepper", small_tiers())
    victim.kill()
    assert await refusal_s(other.authenticate(issued.key)) < 2 * ANSWER_S
    await accounts.close()
    await other.close()


async def test_vanished_cache_does_no_harm(victim: Victim, store: Store) -> None:
    cache, tier = Cache(store), small_tiers()["basic"]
    limits = Limits(store, replicas=3)
    await cache.put("f", "a", b"x", 60)
    assert (await limits.check("bob", "compute", tier)).remaining == 29
    victim.kill()
    began = time.monotonic() - waited_s()
    assert await cache.get("f", "a") is None
    await cache.put("f", "a", b"x", 60)
    async with cache.single_flight("a", wait_s=1) as is_mine:
        assert is_mine
    assert await limits.acquire_slot("bob", "identify", 1, "r1")
    await limits.release_slot("bob", "identify", "r1")
    # A third of the rate remains: three replicas share it.
    answers = [(await limits.check("bob", "compute", tier)).allowed for _ in range(12)]
    assert answers == [True] * 10 + [False] * 2
    refused = await limits.check("bob", "compute", tier)
    assert (refused.allowed, refused.limit) == (False, 30)
    assert 1 <= refused.retry_after_s <= 6
    assert time.monotonic() - waited_s() - began < 4 * ANSWER_S
    victim.start()
    async with asyncio.timeout(BACK_S):
        while await cache.get("f", "a") != b"y":
            await asyncio.sleep(0.1)
            await cache.put("f", "a", b"y", 60)


async def test_a_server_that_may_not_write_is_away_however_it_is_asked(
    victim: Victim, store: Store
) -> None:
    ledger = Ledger(store, small_tiers(), topup_replicas=1)
    await served(partial(ledger.balance, ACCOUNT, "basic"))
    write = ["SET", "a", "b"]
    for fault, mend in (
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ):
        await store.command(*fault.split())
        for call in (
            store.try_write(),
            store.command(*write),
            store.batch([["GET", "a"], write]),
            ledger.reserve(PAYER, "a", 1),
            ledger.topup(ACCOUNT, "p", 1),
        ):
            assert await refusal_s(call) < ANSWER_S
        await store.command(*mend.split())
        await served(store.try_write)
    with pytest.raises(ResponseError):
        await store.batch([["SET", "a", "NOREPLICAS "], ["LPUSH", "a", "LOADING "]])


async def test_a_trial_write_changes_nothing(store: Store) -> None:
    await served(store.try_write)
    before = await store.command("INFO")
    await served(store.try_write)
    after = await store.command("INFO")
    assert await store.command("DBSIZE") == 0
    for figure in ("master_repl_offset", "aof_current_size"):
        assert after[figure] == before[figure]


@pytest.mark.parametrize("autopipelines", [False, True])
async def test_a_process_that_was_held_up_does_not_take_its_ledger_for_away(
    victim: Victim, autopipelines: bool
) -> None:
    store = connect(victim.url, timeout_s=0.2, autopipelines=autopipelines)
    await served(partial(store.command, "PING"))
    answer = asyncio.ensure_future(store.command("ECHO", "here"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251  it is the loop that is blocked
    assert await answer == b"here"
    await store.close()


async def test_waiting_for_a_processor_does_not_count_against_the_ledger(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine so busy that the thread runs half the time."""
    store = connect(victim.url, timeout_s=0.2)
    await served(partial(store.command, "PING"))
    monkeypatch.setattr(in_time, "waited_s", lambda: time.monotonic() / 2)
    began_s = time.monotonic()
    with pytest.raises(ServiceUnavailableError):
        await store.guard(asyncio.sleep(60))
    assert 0.35 <= time.monotonic() - began_s < 50
    await store.close()


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="Linux tells it")
def test_each_thread_knows_how_long_it_waited_for_a_processor() -> None:
    def busy_s() -> tuple[float, float]:
        began_s, used_s, waited = time.perf_counter(), time.thread_time(), in_time.waited_s()
        while time.perf_counter() < began_s + 0.5:
            pass
        took_s = time.perf_counter() - began_s
        return took_s - (time.thread_time() - used_s), in_time.waited_s() - waited

    def agrees() -> bool:
        away_s, waited = busy_s()
        return waited == pytest.approx(away_s, abs=0.05)

    # If a host takes the processor away from this machine, the machine does not notice.
    with ThreadPoolExecutor(1) as other:
        assert any(agrees() for _ in range(10))
        assert any(other.submit(agrees).result() for _ in range(10))


@pytest.fixture
def resetting() -> Iterator[str]:
    """The address of a proxy without a server behind it: it resets every connection."""

    def reset_all() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reset_all)
        thread.start()
        yield f"redis://:secret@127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("autopipelines", [False, True])
def test_a_connection_that_is_reset_at_once_is_an_outage_in_serves_event_loop_too(
    resetting: str, autopipelines: bool
) -> None:
    async def ask_while_busy() -> None:
        store = connect(resetting, timeout_s=5, autopipelines=autopipelines)
        busy = asyncio.create_task(be_busy())
        for _ in range(10):
            await refusal_s(store.command("PING"))
        busy.cancel()
        await store.close()

    async def be_busy() -> None:
        while True:
            time.sleep(0.003)  # noqa: ASYNC251  so that the reset comes before the first write
            await asyncio.sleep(0)

    uvloop.run(ask_while_busy())
