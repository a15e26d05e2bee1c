import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

from tests.conftest import REPOSITORY

# When the tests run in the background, SIGINT may be ignored; child processes inherit that.
COMMAND = """
import signal, sys, time
from pipelines.audio.worker_pool import ended_by_errors, new_pool, without_ctrl_c

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ended_by_errors(new_pool(2, time.sleep, 0)) as pool:
        with without_ctrl_c():
            futures = [pool.submit(time.sleep, 0), *(pool.submit(time.sleep, 600) for _ in "abc")]
        futures[0].result()
        print(*pool._processes, flush=True)
        futures[1].result()
"""


def test_ctrl_c_ends_what_runs_and_drops_what_waits(tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        too_late = Timer(120, os.killpg, [process.pid, signal.SIGKILL])
        too_late.start()
        _, told = process.communicate()
        too_late.cancel()
    assert process.returncode == -signal.SIGINT
    assert told.count("KeyboardInterrupt") == 1  # from the command, and from none of its workers
    assert len(workers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
