"""The process of a command ends with its status, whatever libraries still do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

COMMAND = """
import atexit, os, sys
from serve_app.cli import main as command

class Late:
    def __del__(self, write=os.write):
        write(1, b"taken apart")

late = Late()
atexit.register(print, "at exit")
command.app = lambda: sys.exit({status})
print("told", end=", ")
command.main()
"""


def run(status: str, stdout: IO[bytes] | int) -> "subprocess.CompletedProcess[bytes]":
    words = [sys.executable, "-c", COMMAND.format(status=status)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        words, check=False, env=buffered, stdout=stdout, stderr=subprocess.PIPE, timeout=280
    )


def test_the_interpreter_is_not_taken_apart() -> None:
    for status, code in (("3", 3), ("0", 0), ("", 0)):
        done = run(status, subprocess.PIPE)
        assert done.returncode == code
        assert done.stdout == b"told, at exit\n"


def test_what_could_not_be_told_is_no_success() -> None:
    with Path("/dev/full").open("wb") as full:
        assert run("0", full).returncode == 1
        assert run("3", full).returncode == 3


def test_where_nobody_listens_the_status_is_all() -> None:
    words = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", COMMAND.format(status=3)]
    done = subprocess.run(words, check=False, stderr=subprocess.PIPE, timeout=280)
    assert (done.returncode, done.stderr) == (3, b"")
