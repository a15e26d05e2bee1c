"""Closed-loop HTTP load from one process: ``python -m benchmarks.harness.load``, a `Load` on stdin.

A bare epoll loop over keep-alive connections, so that the client takes a small part of the
processor time that the server takes. Prints a `Measured` as JSON.
"""

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"
STALL_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to send.

    Attributes:
        port: Port of the server, on loopback.
        requests: Complete requests as Latin-1 text, sent in turn, over and over.
        connections: Number of requests in flight at any time.
        duration_s: Duration.
        n_requests: End after this many requests; 0 for no such limit.
    """

    port: int
    requests: Sequence[str]
    connections: int
    duration_s: float
    n_requests: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """What came back.

    Attributes:
        per_s: Answers with status 200 per second.
        failures: Other statuses, and the number of each.
    """

    per_s: float
    p50_ms: float
    p99_ms: float
    n: int
    failures: dict[str, int] = field(default_factory=dict)


def request_text(method: str, path: str, key: str, body: str = "") -> str:
    """Write an HTTP/1.1 request."""
    content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"{content}\r\n{body}"
    )


class Connection:
    """One keep-alive connection with one request in flight."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STALL_LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_s = 0.0
        self._received = bytearray()

    def send(self, request: bytes) -> None:
        """Send the next request."""
        self.sent_s = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> str | None:
        """Receive what has arrived; return the status once the answer is complete.

        Raises:
            ConnectionError: The server closed the connection.
        """
        chunk = self.socket.recv(1 << 18)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._received += chunk
        head_end = self._received.find(HEAD_END)
        if head_end < 0:
            return None
        head = bytes(self._received[:head_end]).lower()
        at = head.find(LENGTH)
        if at < 0:
            raise ConnectionError("an answer without Content-Length")
        size = int(head[at + len(LENGTH) :].partition(b"\r\n")[0])
        if len(self._received) < head_end + len(HEAD_END) + size:
            return None
        self._received.clear()
        return head[9:12].decode()


def apply_load(load: Load) -> Measured:
    """Send and measure."""
    requests = [text.encode("latin-1") for text in load.requests]
    connections = [Connection(load.port) for _ in range(load.connections)]
    latencies_s: list[float] = []
    failures: dict[str, int] = {}
    n_sent = 0
    limit = load.n_requests or sys.maxsize
    with selectors.EpollSelector() as selector:
        began_s = time.perf_counter()
        for one in connections:
            selector.register(one.socket, selectors.EVENT_READ, one)
            one.send(requests[n_sent % len(requests)])
            n_sent += 1
        waiting = load.connections
        while waiting:
            ready = selector.select(STALL_LIMIT_S)
            if not ready:
                raise TimeoutError(f"no answer for {STALL_LIMIT_S:g} s")
            for key, _ in ready:
                one = key.data
                status = one.receive()
                if status is None:
                    continue
                now_s = time.perf_counter()
                if status == "200":
                    latencies_s.append(now_s - one.sent_s)
                else:
                    failures[status] = failures.get(status, 0) + 1
                if now_s - began_s < load.duration_s and n_sent < limit:
                    one.send(requests[n_sent % len(requests)])
                    n_sent += 1
                else:
                    waiting -= 1
        took_s = time.perf_counter() - began_s
    for one in connections:
        one.socket.close()
    p50, p99 = (float(x) for x in np.percentile(latencies_s, [50, 99])) if latencies_s else (0, 0)
    return Measured(len(latencies_s) / took_s, p50 * 1e3, p99 * 1e3, len(latencies_s), failures)


def run_load(load: Load, most_failures: float = 0.0) -> Measured:
    """Apply a load from a separate process.

    Args:
        load: What to send.
        most_failures: Share of answers whose status may be other than 200.

    Raises:
        RuntimeError: More were.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.harness.load"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=True,
        timeout=load.duration_s + 60,
    )
    measured = Measured(**json.loads(done.stdout))
    n_failures = sum(measured.failures.values())
    if n_failures > most_failures * (measured.n + n_failures):
        raise RuntimeError(f"answers other than 200: {measured.failures}")
    return measured


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(apply_load(Load(**json.load(sys.stdin))))))
