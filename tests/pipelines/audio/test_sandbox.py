"""The sandbox of a decoding process, attacked from inside in a separate process."""

import ctypes
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pipelines.audio import sandbox


def in_fork(action: Any) -> int:
    """Run ``action`` in a forked child; its return value is the exit code, 99 for an exception."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = int(action())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def refused(action: Any, error: type[OSError] = PermissionError) -> bool:
    try:
        action()
    except error:
        return True
    return False


FORBIDDEN, ATTACKED = 97, 42
MULTI_THREADED = "ignore:This process .* is multi-threaded:DeprecationWarning"


def expect_attack(attempt: Any) -> None:
    code = in_fork(attempt)
    if code == FORBIDDEN:
        pytest.skip("this machine forbids what the test starts from")
    assert code == ATTACKED


@pytest.mark.filterwarnings(MULTI_THREADED)
def test_without_a_network_not_even_loopback_answers() -> None:
    """It is off only if the machine forbids namespaces, and then it says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        socket.create_connection(address).close()

        def attempt() -> int:
            state = sandbox.leave_network()
            if state != "on":
                return FORBIDDEN if state.startswith("off: ") else 98
            return ATTACKED if refused(lambda: socket.create_connection(address), OSError) else 1

        expect_attack(attempt)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.filterwarnings(MULTI_THREADED)
def test_nobody_reads_what_root_keeps_and_never_comes_back(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"key")
    secret.chmod(0o600)

    def attempt() -> int:
        open_to_root = os.open(secret, os.O_RDONLY)
        if refused(lambda: os.setgroups([0])):
            return FORBIDDEN
        if (state := sandbox.become_nobody()) != "on":
            return FORBIDDEN if state.startswith("off: ") else 98
        checks = [
            os.read(open_to_root, 3) == b"key",
            refused(lambda: os.open(secret, os.O_RDONLY)),
            refused(lambda: os.setuid(0)),
            refused(lambda: os.setgroups([0])),
            refused(lambda: os.kill(os.getppid(), 0)),
            os.getresuid() == os.getresgid() == (sandbox.NOBODY,) * 3,
            os.getgroups() == [],
        ]
        return checks.index(False) if False in checks else ATTACKED

    expect_attack(attempt)


@pytest.mark.skipif(
    os.geteuid() != 0 or os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID != 0,
    reason="needs root, and a file system that has set-user-id programs",
)
@pytest.mark.filterwarnings(MULTI_THREADED)
def test_no_program_gives_privileges_back() -> None:
    """A set-user-id program runs without the privileges of its owner."""

    def user_of(program: Path) -> int:
        return int(subprocess.run([program, "-u"], capture_output=True, check=True).stdout)

    def attempt() -> int:
        try:
            os.setresuid(sandbox.NOBODY, sandbox.NOBODY, sandbox.NOBODY)
            if user_of(program) != 0:
                return FORBIDDEN
        except OSError:
            return FORBIDDEN
        if sandbox.forbid_new_privileges() != "on":
            return 98
        return ATTACKED if user_of(program) == sandbox.NOBODY else 1

    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "id"
        shutil.copy("/usr/bin/id", program)
        program.chmod(0o4755)
        program.parent.chmod(0o755)
        expect_attack(attempt)


@pytest.mark.filterwarnings(MULTI_THREADED)
def test_a_process_of_the_same_user_may_not_look_in() -> None:
    is_dumpable = functools.partial(ctypes.CDLL(None).prctl, 3, 0, 0, 0, 0)
    assert in_fork(is_dumpable) == 1
    assert in_fork(lambda: is_dumpable() if sandbox.forbid_new_privileges() == "on" else 98) == 0


@pytest.mark.filterwarnings(MULTI_THREADED)
def test_the_filter_refuses_files_sockets_and_programs() -> None:
    def attempt() -> int:
        read_end, write_end = os.pipe()
        if sandbox.forbid_new_privileges() != "on" or sandbox.filter_system_calls() != "on":
            return 98
        os.write(write_end, b"ok")
        checks = [
            os.read(read_end, 2) == b"ok",
            refused(lambda: os.open("/etc/passwd", os.O_RDONLY)),
            refused(lambda: socket.socket()),
            refused(lambda: os.execv("/bin/true", ["true"])),  # noqa: S606
            refused(os.fork),
            refused(lambda: os.kill(os.getppid(), 0)),
        ]
        return checks.index(False) if False in checks else ATTACKED

    assert in_fork(attempt) == ATTACKED


def test_every_filter_is_a_whole_program() -> None:
    x86, arm = sandbox.seccomp_program("x86_64"), sandbox.seccomp_program("aarch64")
    assert len(x86) == len(arm) + 16
    assert len(x86) % 8 == 0
