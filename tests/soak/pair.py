"""A real Redis and its replica, which takes over; what it had not received by then is lost."""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from serve_app.local import embedded_redis
from serve_app.local.embedded_redis import LocalRedis, end_process, free_port

LINK_LIMIT_S = 60.0


@dataclass
class Place:
    """A server's folder and port."""

    folder: Path
    port: int
    server: LocalRedis

    @property
    def url(self) -> str:
        return self.server.url

    @classmethod
    def start(cls, folder: Path, port: int = 0, *, of: int | None = None) -> "Place":
        """Start a server, as a replica of the one on port ``of`` if that is given."""
        port = port or free_port()
        follow = ("--replicaof", "127.0.0.1", str(of)) if of is not None else ()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
        return cls(folder, port, embedded_redis.start(folder, extra=(*options, *follow)))

    def kill(self) -> None:
        assert self.server.pid is not None
        end_process(self.server.pid, signal.SIGKILL)


@dataclass
class Pair:
    """The current primary and its replica."""

    primary: Place
    replica: Place

    def restart(self) -> None:
        """Kill the primary and start it again with its file."""
        self.primary.kill()
        self.primary = Place.start(self.primary.folder, self.primary.port)

    def cut_off(self) -> None:
        """Stop the replication: from then on the replica receives nothing."""
        with Redis.from_url(self.replica.url) as redis:
            deadline = time.monotonic() + LINK_LIMIT_S
            while redis.info("replication")["master_link_status"] != "up":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            redis.replicaof("NO", "ONE")

    def fail_over(self) -> None:
        """Lose the primary and its disk; the replica takes its place and gets a new replica."""
        lost = self.primary
        lost.kill()
        shutil.rmtree(lost.folder)
        self.primary = self.replica
        self.replica = Place.start(lost.folder, of=self.primary.port)


@contextmanager
def start_pair(folder: Path) -> Iterator[Pair]:
    """Run a primary and its replica while the block runs."""
    primary = Place.start(folder / "one")
    pair = Pair(primary, primary)
    try:
        pair.replica = Place.start(folder / "two", of=primary.port)
        yield pair
    finally:  # kill: a replica that is writing its first file would not answer a shutdown
        pair.primary.kill()
        pair.replica.kill()
