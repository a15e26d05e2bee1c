"""`afa backfill` on a real Ray whose node says that it has a card."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pyarrow.dataset as ds
import pytest

from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "serve_app" / "data" / "demo.mp3"
COMMAND = [sys.executable, "-c", "from serve_app.cli import run; run()", "backfill"]


@pytest.mark.ray
def test_an_actor_with_a_card_hears_files(tmp_path: Path) -> None:
    """Ray Data asks of actors with a card what it asks of no others; the CPU stands in for it."""
    music = tmp_path / "music"
    music.mkdir()
    for n in range(3):
        (music / f"{n}.mp3").write_bytes(DEMO.read_bytes() + bytes(n))
    told = subprocess.run(
        [*COMMAND, str(music), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {
            "AFA_DATA_DIR": str(tmp_path / "data"),
            "AFA_DEVICE": "cpu",
            "RAY_OVERRIDE_RESOURCES": '{"GPU": 1}',
        },
    )
    assert told.returncode == 0, told.stderr
    assert "3 heard" in told.stdout
    assert ds.dataset(tmp_path / "out" / "tracks").to_table().num_rows == 3


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_run_for_which_there_is_no_room_says_that_it_waits(tmp_path: Path) -> None:
    """As on a cluster whose cards a service has taken."""
    with subprocess.Popen(
        [*COMMAND, str(DEMO.parent), "--out", str(tmp_path / "out"), "--cpus", "999"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "AFA_DATA_DIR": str(tmp_path / "data"),
            "AFA_DEVICE": "cpu",
            "RAY_OVERRIDE_RESOURCES": '{"GPU": 1}',
        },
    ) as run:
        assert run.stderr is not None
        too_late = Timer(120, run.send_signal, [signal.SIGINT])
        too_late.start()
        wanted = "waiting: an actor takes 999 CPU and 1 GPU (--cpus)"
        has_told = any(line.startswith(wanted) for line in run.stderr)
        too_late.cancel()
        if has_told:
            run.send_signal(signal.SIGINT)
            run.stderr.read()
    assert (has_told, run.returncode) == (True, 130)
