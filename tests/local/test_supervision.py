"""An embedded Redis that died is started again: after a kill, and when a full disk has room."""

import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from redis import Redis
from redis.exceptions import RedisError

from serve_app.local import embedded_redis, supervision
from serve_app.local.embedded_redis import LocalRedis, LocalRedisError, is_alive
from serve_app.local.supervision import SupervisedRedis

pytestmark = pytest.mark.redis
ROOM = 64 * 1024


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="afa-") as name:
        yield Path(name)


def pid_of(folder: Path) -> int:
    found = embedded_redis.read_pid_file(folder / "redis-ledger")
    assert found is not None
    return found[0]


def look_until(redis: SupervisedRedis, said: list[str], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, said
        redis.look_after(said.append)
        time.sleep(0.05)


def test_a_killed_server_is_started_again_at_its_address(folder: Path) -> None:
    redis = SupervisedRedis("ledger", partial(embedded_redis.start, folder))
    said: list[str] = []
    try:
        with Redis.from_url(redis.url) as client:
            client.set("a", "b")
        assert not redis.look_after(said.append)
        first, address = pid_of(folder), redis.url
        os.kill(first, signal.SIGKILL)
        look_until(redis, said, lambda: pid_of(folder) != first)
        assert redis.url == address
        assert "ended" in said[0]
        with Redis.from_url(redis.url) as client:
            assert client.get("a") == b"b"
    finally:
        redis.stop()
    assert not is_alive(pid_of(folder))


def test_a_server_that_dies_again_and_again_gets_longer_pauses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []
    now = 0.0

    def start() -> LocalRedis:
        starts.append(now)
        if len(starts) > 1:
            raise LocalRedisError("no room")
        server = embedded_redis.start(folder)
        os.kill(pid_of(folder), signal.SIGKILL)
        return server

    monkeypatch.setattr(supervision, "time", SimpleNamespace(monotonic=lambda: now))
    redis = SupervisedRedis("ledger", start)
    said: list[str] = []
    while not is_ended(pid_of(folder)):
        time.sleep(0.01)
    for tenth in range(400):
        now = tenth / 10
        assert not redis.look_after(said.append)
    pauses = [later - earlier for earlier, later in pairwise(starts[1:])]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 10, 10])
    assert "it did not start: no room" in said


def is_ended(pid: int) -> bool:
    return not is_alive(pid)


def test_after_a_full_disk_it_comes_back_when_there_is_room(folder: Path) -> None:
    """The largest file size stands in for the disk: a write beyond it fails as on a full disk."""
    said: list[str] = []
    is_full = True

    def start_in_little_room() -> LocalRedis:
        server = embedded_redis.start(folder)
        if is_full:
            limit_files(pid_of(folder), ROOM)
        return server

    redis = SupervisedRedis("ledger", start_in_little_room)
    try:
        written = fill(redis.url)
        assert written > 0
        first = pid_of(folder)
        look_until(redis, said, lambda: pid_of(folder) != first)
        second = pid_of(folder)
        assert fill(redis.url) == 0  # restarted, and ended by the first write
        is_full = False
        look_until(redis, said, lambda: pid_of(folder) != second)
        with Redis.from_url(redis.url) as client:
            assert client.llen("acknowledged") == written
            client.rpush("acknowledged", "more")
    finally:
        redis.stop()


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """Yield a separate file system of 1 MB."""
    made = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=1m", "afa-test", str(folder)],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


def test_a_server_that_a_full_disk_keeps_from_its_pid_file_is_not_left_behind(
    small_disk: Path,
) -> None:
    redis = SupervisedRedis("ledger", partial(embedded_redis.start, small_disk))
    said: list[str] = []
    try:
        with Redis.from_url(redis.url) as client:
            client.rpush("acknowledged", "x")
        with (small_disk / "other.log").open("wb", buffering=0) as other:
            with suppress(OSError):
                while True:
                    other.write(bytes(512))
            os.kill(pid_of(small_disk), signal.SIGKILL)
            look_until(redis, said, lambda: any("did not start" in text for text in said))
            assert servers_on(small_disk) == []
            other.truncate(0)
        first = pid_of(small_disk)
        look_until(redis, said, lambda: pid_of(small_disk) != first)
        assert servers_on(small_disk) == [pid_of(small_disk)]
        with Redis.from_url(redis.url) as client:
            assert client.llen("acknowledged") == 1
    finally:
        redis.stop()


def servers_on(folder: Path) -> list[int]:
    """Return the running Redis servers whose command line names a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        is_of_folder = b"redis-server" in command and os.fsencode(folder) in command
        if is_of_folder and is_alive(int(process.name)):
            found.append(int(process.name))
    return found


def test_a_server_whose_pid_file_is_lost_gets_no_other_beside_it(folder: Path) -> None:
    server = embedded_redis.start(folder)
    try:
        (folder / "redis-ledger" / "redis.pid").unlink()
        with pytest.raises(LocalRedisError, match="another Redis runs on"):
            embedded_redis.start(folder, limit_s=0.2)
        with Redis.from_url(server.url) as client:
            assert client.ping()
    finally:
        server.stop()
    again = embedded_redis.start(folder)
    again.stop()


def limit_files(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def fill(url: str) -> int:
    """Write until the server ends; return how many writes it acknowledged."""
    with Redis.from_url(url) as client:
        for count in range(1000):
            try:
                client.rpush("acknowledged", "x" * 1000)
            except (RedisError, OSError):
                return count
    raise AssertionError("the server took everything")
