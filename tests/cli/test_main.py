"""A command's process ends with the command's status, whatever libraries still do."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from typer.main import get_command

from serve_app.cli.main import app

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


INSTALLED = """
import os, signal, sys
from importlib.metadata import EntryPoint

class Interrupting:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
EntryPoint("afa", "{entry}", "console_scripts").load()()
print("not interrupted")
"""
INTERRUPTED = """
from serve_app.cli import main as command

def interrupted():
    raise KeyboardInterrupt

command.app = interrupted
command.main()
"""

SPELT = """
from serve_app.cli import main as command, run

command.app = lambda: print("Bj\\xf6rk")
run()
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


def installed(module: str) -> str:
    """Return what the installed command runs, with Ctrl-C arriving while a module is loaded."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    return INSTALLED.format(module=module, entry=project["project"]["scripts"]["afa"])


@pytest.mark.parametrize("code", [installed("typer"), installed("httpx"), INTERRUPTED])
def test_ctrl_c_before_a_command_has_begun_ends_it_quietly(code: str) -> None:
    words = [sys.executable, "-c", code, "models", "list"]
    # When the tests run in the background, SIGINT may be ignored; child processes inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=280)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    words = [sys.executable, "-c", installed("typer"), "--help"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_locale_lacks_is_spelt_out() -> None:
    words = [sys.executable, "-c", SPELT]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, check=False, env=ascii_only, capture_output=True, timeout=280)
    assert (done.returncode, done.stdout) == (0, b"Bj\\xf6rk\n"), done.stderr


def afa(words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a shell command in a folder, with ``afa`` as a command."""
    code = "from serve_app.cli import run; run()"
    return subprocess.run(
        ["/bin/sh", "-c", f'afa() {{ "$0" -c "{code}" "$@"; }}; {words}', sys.executable],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=280,
    )


def test_the_version_is_told(tmp_path: Path) -> None:
    done = afa("afa --version", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"afa \d+\.\d+\.\d+\n", done.stdout)


def test_a_folder_that_was_deleted_is_told(tmp_path: Path) -> None:
    """Commands ended there in a traceback, or were ended by torch."""
    done = afa("mkdir gone; cd gone; rmdir ../gone; afa scan Music", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "afa: the folder that this runs in was deleted; go to another one first\n"


def test_a_full_disk_behind_standard_output_is_told(tmp_path: Path) -> None:
    """All commands but two ended in a traceback."""
    done = afa("afa models list >/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, "afa: No space left on device\n")


def test_no_argument_is_named_with_dots_which_help_adds() -> None:
    def below(command: Any) -> Iterator[Any]:
        yield command
        for one in getattr(command, "commands", {}).values():
            yield from below(one)

    names = [
        parameter.metavar
        for command in below(get_command(app))
        for parameter in command.params
        if parameter.param_type_name == "argument"
    ]
    assert "SOURCE" in names
    assert [name for name in names if name and name.endswith(("…", "..."))] == []
