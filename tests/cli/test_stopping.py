"""How long-running commands end when they are stopped."""

import signal
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

WORK = """
import asyncio, signal
from serve_app.cli.backup import GONE, run

# In the background, or under nohup, some of them are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

async def work(say):
    try:
        print("begun", flush=True)
        await asyncio.sleep(60)
    finally:
        print("put in order", flush=True)

run(work, "backing up", GONE)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_stops_a_backup_leaves_nothing_behind(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORK], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert "put in order" in said
    assert "what it had written is gone" in said
    assert process.returncode != 0
