"""Cut the power of a Redis: kill it, and remove from its file what was not forced to disk.

SIGKILL alone leaves everything in the page cache, so it cannot tell ``appendfsync always`` from
``everysec``. A preloaded shim notes the length of every file when fdatasync or fsync is called, and
skips the call itself. After the kill, the append-only file is cut to the length that was noted
last.
"""

import os
import shutil
import signal
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedis, is_alive

SHIM = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int log_fd = -1;

__attribute__((constructor)) static void open_log(void) {
  log_fd = open(getenv("AFA_SYNC_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int note(int fd) {
  struct stat status;
  uint64_t entry[2];
  if (fstat(fd, &status) != 0) return -1;
  entry[0] = status.st_ino;
  entry[1] = status.st_size;
  return write(log_fd, entry, sizeof entry) == sizeof entry ? 0 : -1;
}

int fdatasync(int fd) { return note(fd); }
int fsync(int fd) { return note(fd); }
"""
ENTRY = struct.Struct("=QQ")


def has_compiler() -> bool:
    """Return whether the shim can be built here."""
    return shutil.which("cc") is not None


def build_shim(folder: Path) -> Path:
    """Compile the shim into ``folder``."""
    source, library = folder / "sync_shim.c", folder / "sync_shim.so"
    source.write_text(SHIM, encoding="utf-8")
    command = [shutil.which("cc") or "cc", "-O1", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)
    return library


@dataclass
class Victim:
    """A Redis that can be killed, have its power cut, and be started again on the same socket.

    Attributes:
        folder: Where its data is stored.
        fsync: ``always``, ``everysec``, or ``off`` for no file at all.
        shim: Library from ``build_shim``; without it, only kills are possible.
    """

    folder: Path
    fsync: str = "always"
    shim: Path | None = None
    server: LocalRedis | None = None

    @property
    def log(self) -> Path:
        return self.folder / "sync.log"

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url

    def start(self) -> None:
        environment = {}
        if self.shim is not None:
            environment = {"LD_PRELOAD": str(self.shim), "AFA_SYNC_LOG": str(self.log)}
        extra = ["--auto-aof-rewrite-min-size", "4mb"]
        if self.fsync == "off":
            extra += ["--appendonly", "no"]
        self.server = embedded_redis.start(
            self.folder,
            appendfsync="everysec" if self.fsync == "everysec" else "always",
            extra=extra,
            environment=environment,
        )

    def kill(self) -> None:
        assert self.server is not None
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGKILL)
        while is_alive(self.server.pid):
            reap(self.server.pid)

    def cut_power(self) -> int:
        """Kill, and drop what was not forced to disk; return how many bytes that was."""
        self.kill()
        path = append_only_file(self.folder)
        status = path.stat()
        forced = 0
        data = self.log.read_bytes()
        for inode, length in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
            if inode == status.st_ino:
                forced = length
        os.truncate(path, min(forced, status.st_size))
        return max(0, status.st_size - forced)

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()


def append_only_file(folder: Path) -> Path:
    """Return the file that Redis appends to: the only one, or, since Redis 7, the newest."""
    place = folder / "redis-ledger"
    found = [*place.glob("appendonly.aof"), *place.glob("appendonlydir/*.incr.aof")]
    return max(found, key=lambda path: (len(path.name), path.name))


def reap(pid: int) -> None:
    """Reap a child that has ended, so that it is not a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
