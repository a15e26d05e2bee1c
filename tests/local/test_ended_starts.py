"""A real start that is ended before the service is ready leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import free_port, is_alive
from serve_app.local.processes import descendants

pytestmark = [pytest.mark.ray, pytest.mark.redis]

REPOSITORY = Path(__file__).parents[2]
AFA = [sys.executable, "-c", "from serve_app.cli.main import main; main()"]
PATIENCE_S = 280.0


def up(folder: Path, output: Path, *, is_group: bool = False) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if "REDIS_URL" not in name}
    words = ["up", "--foreground", "--port", str(free_port()), "--data-dir", str(folder)]
    with output.open("wb") as file:
        return subprocess.Popen(
            [*AFA, *words],
            cwd=REPOSITORY,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=is_group,
        )


def wait_for(step: str, output: Path, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while step not in output.read_text():
        assert time.monotonic() < deadline, step
        time.sleep(0.05)


def afa(command: str, folder: Path) -> str:
    words = [*AFA, command, "--data-dir", str(folder)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout


def test_a_start_that_is_ended_leaves_nothing(folder: Path) -> None:
    output = folder / "told"
    with up(folder, output) as start:
        wait_for("afa: deploying", output)
        assert "starting, pid" in afa("status", folder)
        assert "stopped" in afa("down", folder)
        assert start.wait(PATIENCE_S) == 0
    told = output.read_text()
    assert told.rstrip().endswith("afa: stopped"), told
    assert "ready at" not in told
    assert "SIGTERM received" not in told  # Ray writes that when it handles the signal
    for role in ("ledger", "cache"):
        assert embedded_redis.find_running(folder / f"redis-{role}") is None
    assert "not running" in afa("status", folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_service_all_of_whose_processes_are_ended_leaves_nothing(
    folder: Path, number: signal.Signals
) -> None:
    output = folder / "told"
    with up(folder, output, is_group=True) as start:
        wait_for("afa: deploying", output)
        os.killpg(start.pid, number)  # SIGHUP as when a terminal is closed
        assert start.wait(PATIENCE_S) == 0
    assert output.read_text().rstrip().endswith("afa: stopped"), output.read_text()
    for role in ("ledger", "cache"):
        assert embedded_redis.find_running(folder / f"redis-{role}") is None


@pytest.mark.slow
def test_a_service_whose_ray_was_killed_ends_with_a_status(folder: Path) -> None:
    """The status makes systemd and containers start it again."""
    output = folder / "told"
    with up(folder, output) as service:
        try:
            wait_for("afa: ready at", output, 2 * PATIENCE_S)
            parts = descendants(service.pid)
            os.kill(next(pid for name, pid in parts.items() if "raylet" in name), signal.SIGKILL)
            assert service.wait(PATIENCE_S) == 1
        finally:
            afa("down", folder)
    assert "of Ray was killed or crashed; the service ends with it" in output.read_text()
    deadline = time.monotonic() + PATIENCE_S
    while any(is_alive(pid) for pid in parts.values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "not running" in afa("status", folder)
