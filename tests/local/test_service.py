"""What a start waits for, and what it leaves behind if it does not finish."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from configs.settings import Settings
from serve_app.domain.tiers import LOCAL, SOLD
from serve_app.local import deploying, own_ray, service
from serve_app.local.embedded_redis import find_running
from serve_app.local.service import CONFIG, LocalService, RayEndedError

RAY = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(gcs_address="127.0.0.1:1"))


@pytest.fixture
def states() -> list[list[str]]:
    """Return a list of what is unavailable at each check."""
    return []


@pytest.fixture
def started(states: list[list[str]], tmp_path: Path) -> Iterator[LocalService]:
    class Readyz(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            degraded = states.pop(0) if len(states) > 1 else states[0]
            names = {"audit": "AuditMismatchError", "journal": "JournalStoppedError"}
            is_for_operators = set(degraded) <= names.keys()
            checks = {part: names[part] if is_for_operators else "no answer" for part in degraded}
            self.wfile.write(json.dumps({"degraded": degraded, "checks": checks}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Readyz)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port, settings = server.server_port, Settings(data_dir=tmp_path)
    yield LocalService(settings, "127.0.0.1", port, CONFIG, is_over=lambda: False)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_start_waits_for_every_part_but_not_for_what_somebody_has_to_do(
    started: LocalService, states: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    states[:] = [["ledger", "audit"], ["mood"], []]
    started._wait_ready()
    assert states == [[]]
    assert capsys.readouterr().out == ""
    states[:] = [["mood", "audit"], ["audit"]]
    started._wait_ready()
    told = capsys.readouterr().out
    assert "the ledger's audit found a broken rule" in told
    assert "`afa credits audit`" in told
    states[:] = [["journal", "keeper"], ["audit", "journal"]]
    started._wait_ready()
    told = capsys.readouterr().out
    assert "the ledger's audit found a broken rule" in told
    assert "`afa ledger reconcile`" in told


def test_a_start_ends_where_a_part_stays_away(
    started: LocalService, states: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READY_LIMIT_S", 0.5)
    states[:] = [["mood", "audit"]]
    with pytest.raises(RuntimeError, match=r"not ready after .*mood"):
        started._wait_ready()


def test_a_full_disk_under_the_log_ends_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115  closing it fails, too
    monkeypatch.setattr(sys, "stdout", full)
    try:
        service.say("the ledger Redis ended; starting it again")
        service.say("it did not start")
    finally:
        with suppress(OSError):
            full.close()


def test_a_start_asks_no_proxy(
    started: LocalService, states: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(service, "READY_LIMIT_S", 0)
    states[:] = [[]]
    started._wait_ready()


STEPS = ["_start_redis", "_import_demo_catalog", "_start_ray", "_show_metrics"]
STEPS += ["_deploy", "_wait_ready", "_issue_keys", "_write_session"]


@pytest.mark.parametrize("n_done", range(len(STEPS)))
def test_a_start_goes_no_further_once_it_is_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_done: int
) -> None:
    done: list[str] = []
    settings = Settings(data_dir=tmp_path)
    started = LocalService(settings, "127.0.0.1", 1, CONFIG, lambda: len(done) == n_done)
    for name in STEPS:
        monkeypatch.setattr(started, name, lambda name=name: done.append(name))
    started.start()
    assert done == STEPS[:n_done]


def test_what_waits_for_the_service_looks_whether_it_is_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False, True, False, True])
    settings = Settings(data_dir=tmp_path)
    started = LocalService(settings, "127.0.0.1", 1, CONFIG, lambda: next(looks, True))
    monkeypatch.setitem(sys.modules, "ray", RAY)
    monkeypatch.setattr(service, "DEPLOY", (sys.executable, "-c", "import time; time.sleep(60)"))
    started._deploy()
    started._wait_ready()
    assert not list(looks)


def test_a_start_ends_where_its_deploying_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, lambda: False)
    monkeypatch.setitem(sys.modules, "ray", RAY)
    monkeypatch.setattr(service, "DEPLOY", (sys.executable, "-c", "pass"))
    started._deploy()
    monkeypatch.setattr(service, "DEPLOY", (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(service.NotStartedError):
        started._deploy()


def test_a_ctrl_c_does_not_reach_the_deploying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, lambda: False)
    monkeypatch.setitem(sys.modules, "ray", RAY)
    fails_here = "import os; raise SystemExit(os.getpgrp() != os.getpid())"
    monkeypatch.setattr(service, "DEPLOY", (sys.executable, "-c", fails_here))
    started._deploy()


def test_a_deploying_that_is_ended_together_with_the_service_did_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, systemd sends SIGTERM to all processes of a unit."""
    signals = tmp_path / "signals"
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, signals.exists)
    monkeypatch.setitem(sys.modules, "ray", RAY)
    monkeypatch.setattr(service, "POLL_S", 1.0)
    ends = f"import pathlib; pathlib.Path({str(signals)!r}).touch(); raise SystemExit(1)"
    monkeypatch.setattr(service, "DEPLOY", (sys.executable, "-c", ends))
    started._deploy()


def test_deploying_ends_with_the_service() -> None:
    """Ray waits for minutes for a head that ended together with the service."""
    command = [*service.DEPLOY, "--address", "127.0.0.1:1", "--config", str(CONFIG)]
    command += ["--host", "127.0.0.1", "--port", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert process.wait(280) == 1
        finally:
            process.kill()


def test_a_start_says_why_a_part_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "Error:\nray::ServeReplica:afa:Mood\nTraceback ...\nDeviceMissingError: no CUDA\n"
    parts = [
        SimpleNamespace(name="Mood", status="DEPLOY_FAILED", message=trace),
        SimpleNamespace(name="Api", status="HEALTHY", message=""),
    ]
    failed = SimpleNamespace(status="DEPLOY_FAILED", message="Failed to ...")
    overview = SimpleNamespace(app_status=failed, deployment_statuses=parts)
    client = SimpleNamespace(get_serve_status=lambda _: overview)
    monkeypatch.setattr(deploying, "_get_global_client", lambda: client)
    assert not deploying.wait_deployed()
    told = capsys.readouterr().out
    assert "Mood does not start: DeviceMissingError: no CUDA\n" in told
    assert "Api does not" not in told
    assert "Failed to ..." in told


def test_the_handler_of_sigterm_is_no_other_once_ray_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray sets a handler of its own in the main thread, and none elsewhere."""

    def start_ray(_: int) -> dict[str, int]:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
        return {}

    stopped: list[str] = []
    monkeypatch.setattr(own_ray, "start", start_ray)
    monkeypatch.setattr(service, "stop_ray", lambda: stopped.append("Ray"))
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, lambda: False)
    before = signal.getsignal(signal.SIGTERM)
    started._start_ray()
    try:
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)
        started.stop()
    assert stopped == ["Ray"]


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_start_that_is_ended_does_not_wait_for_what_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool
) -> None:
    steps = ("_start_redis", "_import_demo_catalog", "_show_metrics", "_deploy", "_wait_ready")
    for step in (*steps, "_issue_keys", "_write_session"):
        monkeypatch.setattr(LocalService, step, lambda _: None)
    stopped: list[str] = []
    monkeypatch.setattr(own_ray, "start", lambda _: {})
    monkeypatch.setattr(service, "stop_serve", lambda: stopped.append("Serve"))
    monkeypatch.setattr(service, "stop_ray", lambda: stopped.append("Ray"))
    looks = iter([False] * len(steps) + [not is_ready] * 3)  # ended after `_deploy`
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, looks.__next__)
    started.start()
    started.stop()
    assert stopped == (["Serve", "Ray"] if is_ready else ["Ray"])


def test_redis_ends_where_ray_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, lambda: False)
    monkeypatch.setattr(own_ray, "start", lambda _: {})
    started._start_ray()
    stopped: list[str] = []
    started._redis[:] = [
        SimpleNamespace(stop=lambda name=name: stopped.append(name)) for name in ("ledger", "cache")
    ]
    monkeypatch.setattr(service, "stop_ray", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        started.stop()
    assert stopped == ["cache", "ledger"]


def test_a_service_ends_with_its_ray_and_does_not_ask_it_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = LocalService(Settings(data_dir=tmp_path), "127.0.0.1", 1, CONFIG, lambda: False)
    killed: list[str] = []
    monkeypatch.setattr(own_ray, "kill_rest", lambda: killed.append("all that this process began"))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as raylet:
        monkeypatch.setattr(own_ray, "start", lambda _: {f"raylet-{raylet.pid}": raylet.pid})
        monkeypatch.setattr(service, "stop_ray", lambda: pytest.fail("it waits for its head"))
        started._start_ray()
        started.look_after()
        raylet.kill()
        raylet.wait()
        with pytest.raises(RayEndedError, match=f"raylet-{raylet.pid} of Ray was killed"):
            started.look_after()
        started.stop()
    assert killed


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Not pytest's own folder: the path of a socket may have at most 107 bytes."""
    with TemporaryDirectory(prefix="afa-") as folder:
        yield Path(folder)


@pytest.mark.redis
def test_a_redis_that_a_killed_start_left_is_told_and_ends_with_the_others(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DATA_DIR", "REDIS_URL", "CACHE_URL", "PUBLIC_URL"):
        monkeypatch.setenv(f"AFA_{name}", "")  # so that what the start sets is undone
        monkeypatch.delenv(f"AFA_{name}")
    starting = "import sys, pathlib; from serve_app.local.embedded_redis import start; "
    starting += "start(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", starting, str(short_folder)], check=True)
    left = find_running(short_folder / "redis-ledger")
    assert left is not None
    started = LocalService(Settings(data_dir=short_folder), "127.0.0.1", 1, CONFIG, lambda: False)
    started._start_redis()
    try:
        told = capsys.readouterr().out
        assert "the ledger Redis of an earlier start runs on, and is used again" in told
        assert "cache" not in told
        monkeypatch.setattr(started, "_keys", dict.fromkeys([*SOLD, LOCAL], "key"))
        started._write_session()
        session = started._files.read_session()
        assert session is not None
        assert left.pid in session["pids"].values()
        assert session["folder"] == started._files.folder_id
    finally:
        started.stop()
    assert find_running(short_folder / "redis-ledger") is None
