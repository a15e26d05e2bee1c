"""The same scripts on a real Redis Cluster of three nodes: all keys of a script are in one slot."""

import asyncio
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from redis import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from serve_app.cli.examination.redis_roles import RIGHTS
from serve_app.domain.credits import AccountPayer
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.payments import TopupSettings
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.opening import begin_archive
from serve_app.ledger.archive.restore import read, verify
from serve_app.ledger.archive.segments import Archive
from serve_app.ledger.jobs import webhooks
from serve_app.ledger.jobs.queue import Jobs
from serve_app.ledger.jobs.types import JobState, NewJob
from serve_app.ledger.jobs.webhooks import Webhooks
from serve_app.ledger.journal import Journal
from serve_app.ledger.ledger import Ledger
from serve_app.ledger.topups import Topups
from serve_app.local.embedded_redis import find_binary
from serve_app.providers.payment_sandbox import SandboxPayments
from serve_app.services.payments import PaymentsWorker
from serve_app.store.accounts import Accounts
from serve_app.store.bus import Bus
from serve_app.store.client import Store, connect
from serve_app.store.idempotency import Idempotency
from serve_app.store.keys import join_member
from serve_app.store.limits import Limits
from tests.redis_fixtures import BUSY_MACHINE_S
from tests.store.setting import small_tiers, some_work

pytestmark = pytest.mark.redis

NODES = 3
SLOTS = 16_384
PORTS = range(12_000, 20_000)
"""Below the ports of `afa`'s servers and outgoing connections, as are those 10,000 higher."""

STARTS = 10
OWNERS = [f"owner{number}" for number in range(9)]


def free_port() -> int:
    """Find a port whose cluster-bus port (10,000 higher) is free too; another may still take it."""
    while True:
        candidate = random.SystemRandom().choice(PORTS)
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", candidate))
                two.bind(("127.0.0.1", candidate + 10_000))
            except OSError:
                continue
        return candidate


def wait_for(condition, limit_s: float = 120.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if condition():
                return
        except (RedisError, OSError):
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start_node(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a node on its own port."""
    for _ in range(STARTS):
        port = free_port()
        process = launch(folder / str(port), port)
        if answers(process, port):
            return process, port
        process.kill()
        process.wait()
    raise AssertionError("every port was taken")


def launch(home: Path, port: int) -> subprocess.Popen[bytes]:
    home.mkdir(exist_ok=True)
    options = {"port": port, "dir": home, "save": "", "cluster-enabled": "yes"}
    options |= {"bind": "127.0.0.1", "cluster-node-timeout": 60_000, "logfile": home / "log"}
    command = [
        find_binary(),
        *(text for key, value in options.items() for text in (f"--{key}", str(value))),
    ]
    return subprocess.Popen(command)


def answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Return whether this process answers, and not another that has taken its port."""
    with Redis(port=port) as node:
        wait_for(lambda: process.poll() is not None or node.ping())
        return process.poll() is None and node.info("server")["process_id"] == process.pid


@pytest.fixture(scope="module")
def cluster_port() -> Iterator[int]:
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    processes, ports, nodes = [], list[int](), []
    try:
        for _ in range(NODES):
            process, port = start_node(folder)
            processes.append(process)
            ports.append(port)
            nodes.append(Redis(port=port))
        for index, node in enumerate(nodes):
            low, high = index * SLOTS // NODES, (index + 1) * SLOTS // NODES
            node.execute_command("CLUSTER", "ADDSLOTS", *range(low, high))
            node.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
        for node in nodes:
            wait_for(lambda node=node: node.cluster("INFO")["cluster_state"] == "ok")
        yield ports[0]
    finally:
        for node in nodes:
            node.close()
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


@pytest.fixture
async def cluster(cluster_port: int) -> AsyncIterator[Store]:
    store = connect(f"redis+cluster://127.0.0.1:{cluster_port}", timeout_s=10)
    await store.redis.flushall()
    yield store
    await store.close()


async def test_money_jobs_and_keys_work_on_a_cluster(
    cluster: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "ROUND_S", BUSY_MACHINE_S)
    tiers = small_tiers()
    ledger, jobs = Ledger(cluster, tiers), Jobs(cluster, tiers)
    topups = Topups(cluster, ledger)
    accounts = Accounts(cluster, "pepper", tiers)
    for owner in OWNERS:
        payer = AccountPayer(owner, "basic")
        await ledger.reserve(payer, "req:1", 5)
        await ledger.commit(owner, "req:1", 3)
        await ledger.reserve(payer, "req:2", 5, ttl_s=0.001)
        await topups.enable(owner, TopupSettings(50, 100, 5, 10))
        await jobs.submit(NewJob(f"job_{owner}", owner, "basic", some_work(), 10))
        charge = await ledger.count_hit(owner, "basic", hits=6)
        assert charge.credits == 1
    await asyncio.sleep(0.05)
    assert await ledger.reap_due() == len(OWNERS)
    assert await PaymentsWorker(topups, SandboxPayments()).run_once() == len(OWNERS)
    sent: list[str] = []

    async def send(url: str, headers: dict[str, str], body: bytes) -> int:
        sent.append(url)
        return 200

    hooks = Webhooks(cluster, jobs, send, pepper="p")  # type: ignore[arg-type]
    for number, _ in enumerate(OWNERS):
        claim = await jobs.claim("w1")
        assert claim is not None
        await hooks.register(claim.account, f"https://example.org/{claim.account}")
        waiting = asyncio.create_task(jobs.wait(claim.account, claim.job_id, 10))
        if number % 3 == 0:
            await jobs.fail(claim, "unprocessable_audio", "x")
        elif number % 3 == 1:
            assert await jobs.finish(claim, b"r")
        else:
            assert await jobs.heartbeat(claim, 0.1, "mood")
            assert await jobs.finish(claim, b"r")
        record = await waiting
        assert record is not None
        assert record.state is (JobState.FAILED if number % 3 == 0 else JobState.COMPLETE)
    await jobs.submit(NewJob("job_last", "owner1", "basic", some_work(), 0))
    lost = await jobs.claim("w3")
    assert lost is not None
    await jobs.give_back(lost)
    last = await jobs.claim("w4")
    assert last is not None
    assert (last.job_id, last.fence) == ("job_last", 2)
    await jobs.recover()
    assert await hooks.deliver_due() == len(OWNERS)
    assert sorted(sent) == [f"https://example.org/{owner}" for owner in OWNERS]
    totals = {owner: (await ledger.balance(owner)).remaining for owner in OWNERS}
    # Of 60, 3 and 1 are spent, and 100 are bought; a completed job took 10 more.
    assert set(totals.values()) == {156, 146}
    issued = await accounts.issue("owner0", "pro")
    # A higher plan adds the difference at once: 200 a month instead of 60.
    assert (await ledger.balance("owner0")).remaining == totals["owner0"] + 140
    caller = await accounts.authenticate(issued.key)
    assert caller is not None
    await accounts.revoke((await accounts.rotate(issued.key_id)).key_id)
    assert (await Limits(cluster).check("owner0", "read", tiers["pro"])).allowed
    await Idempotency(cluster).begin("owner0", "k", "print")
    report = await Journal(cluster).audit()
    assert report.mismatches == ()
    assert report.accounts == len(OWNERS)
    homes = {
        cluster.redis.get_node_from_key(cluster.keys.balance(owner)).port  # type: ignore[union-attr]
        for owner in OWNERS
    }
    assert len(homes) > 1
    await jobs.close()
    await accounts.close()


async def test_many_keys_of_a_cluster_are_asked_at_once(cluster: Store) -> None:
    sums = [cluster.keys.shard(cluster.keys.shard_tag(shard), "jb") for shard in range(9)]
    await cluster.command("HSET", sums[1], "b", "2")
    await cluster.command("HSET", sums[2], "c", "3")
    assert await cluster.ask(sums, "HMGET", "a", "b") == {sums[1]: [None, b"2"]}
    assert await cluster.ask(sums, "HLEN") == {sums[1]: 1, sums[2]: 1}


async def test_a_user_and_what_is_quoted_in_a_password_open_a_cluster(
    cluster: Store, cluster_port: int
) -> None:
    rules = ("on", ">p@ss/w%rd", "~*", "+@all")
    await cluster.redis.execute_command("ACL SETUSER", "amy", *rules, target_nodes="all")
    amy = connect(f"redis+cluster://amy:p%40ss%2Fw%25rd@127.0.0.1:{cluster_port}", timeout_s=10)
    try:
        assert await amy.redis.execute_command("ACL WHOAMI", target_nodes="random") == "amy"
    finally:
        await amy.close()
        await cluster.redis.execute_command("ACL DELUSER", "amy", target_nodes="all")


async def test_the_rights_that_are_told_suffice_for_a_cluster(
    cluster: Store, cluster_port: int
) -> None:
    rules = ("on", ">secret", *re.findall(r"[~&+][^ ,]+|resetchannels", RIGHTS))
    await cluster.redis.execute_command("ACL SETUSER", "amy", *rules, target_nodes="all")
    amy = connect(f"redis+cluster://amy:secret@127.0.0.1:{cluster_port}", timeout_s=10)
    bus = Bus(amy)
    bus.listen("afa-news", lambda _: None)
    try:
        await amy.try_write()
        assert await amy.now_ms()
        assert await bus.ready()
    finally:
        await bus.close()
        await amy.close()
        await cluster.redis.execute_command("ACL DELUSER", "amy", target_nodes="all")


async def test_messages_arrive_from_a_cluster_with_a_password(
    cluster: Store, cluster_port: int
) -> None:
    for_all = partial(cluster.redis.execute_command, "ACL SETUSER", "default", target_nodes="all")
    await for_all("resetpass", ">secret")
    locked = connect(f"redis+cluster://:secret@127.0.0.1:{cluster_port}", timeout_s=10)
    heard = asyncio.Queue[str | None]()
    bus = Bus(locked)
    bus.listen("news", heard.put_nowait)
    try:
        assert await bus.ready()
        await bus.publish("news", "here")
        async with asyncio.timeout(10):
            while await heard.get() != "here":
                continue
    finally:
        await bus.close()
        await locked.close()
        await for_all("nopass")


async def test_a_cluster_of_which_no_node_answers_is_unavailable() -> None:
    gone = connect(f"redis+cluster://127.0.0.1:{free_port()}")
    with pytest.raises(ServiceUnavailableError):
        await gone.command("GET", "key")
    with pytest.raises(ServiceUnavailableError):
        await gone.batch([("GET", "key")])
    assert not await gone.ping()
    await gone.close()


async def test_a_trial_write_finds_the_one_primary_that_takes_none(cluster: Store) -> None:
    await cluster.try_write()
    assert isinstance(cluster.redis, RedisCluster)
    for node in cluster.redis.get_primaries():
        ask = partial(cluster.redis.execute_command, target_nodes=[node])
        await ask("CONFIG SET", "maxmemory", 1)
        with pytest.raises(ServiceUnavailableError):
            await cluster.try_write()
        await ask("CONFIG SET", "maxmemory", 0)
    await cluster.try_write()


async def test_an_archive_is_begun_anew_on_a_cluster(cluster: Store, tmp_path: Path) -> None:
    ledger = Ledger(cluster, small_tiers())
    topups = Topups(cluster, ledger)
    lost, kept = (Archive((tmp_path / name).as_uri()) for name in ("lost", "kept"))
    for owner in OWNERS:
        await ledger.topup(f"late-{owner}", "pay:1", 100)
        await topups.enable(f"late-{owner}", TopupSettings(50, 100, 5, 10))
    assert await Exporter(cluster, lost).export() >= len(OWNERS)
    for owner in OWNERS:
        await ledger.reserve(AccountPayer(f"late-{owner}", "basic"), "held", 5)
    done = await begin_archive(cluster, kept)
    assert done.calls_kept == len(OWNERS)
    assert (await verify(kept)).problems == []
    found = {shard.name: shard.fold async for shard in read(kept, [])}
    for owner in (f"late-{owner}" for owner in OWNERS):
        fold = found[cluster.keys.tag(owner)[1:-1]]
        assert fold.accounts[owner] == await cluster.command("GET", cluster.keys.balance(owner))
        assert fold.topups[owner]["pack"] == "100"
        assert join_member(owner, "held") in fold.deadlines
        assert (owner, "pay:1") in {(one.account, one.payment_id) for one in fold.payments}
