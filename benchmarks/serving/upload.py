"""Uploads of 15 and 50 MB through Ray Serve: speed, memory, and how soon too much is refused.

The real API on a real ledger and object store, compared with the same application on one uvicorn
process and with a bare loopback copy. Memory is the total growth of all server processes while a
body passes; a refused body's figure is what the server had received when it answered 413.
"""

import http.client
import io
import os
import secrets
import select
import socket
import statistics
import time
import wave
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from benchmarks.harness.api import Server, serving
from benchmarks.harness.scene import Scene, open_scene
from benchmarks.report import Options, Result, Target, median_ratio
from benchmarks.server_process import LOCAL, THROUGHPUT, UVICORN
from serve_app.local.processes import descendants

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "upload"

MB = 1_000_000
SIZES_MB = (15, 50)
WAV_HEAD_BYTES = 44
LIMIT_BYTES = 52_428_800
"""Upload limit of the keys' tier."""
PROFILES = (LOCAL, THROUGHPUT)
LOOPBACK = "loopback copy"
PIECE = 1 << 18
ANSWER_LIMIT_S = 60.0
MOST_MEMORY = 3.0
MOST_TAKEN = 3.0

Rounds = dict[tuple[str, int], list[tuple[float, float]]]
"""(contender, MB) → MB per second and memory in bodies, for each round."""


def run(options: Options) -> Result:
    """Measure both profiles, each in rounds that alternate with uvicorn and the copy."""
    rounds: Rounds = {}
    taken: dict[str, dict[str, float]] = {}
    with open_scene() as scene:
        for profile in PROFILES:
            taken |= compare(profile, scene, options, rounds)
    return summarise(rounds, taken, options)


def compare(
    profile: str, scene: Scene, options: Options, rounds: Rounds
) -> dict[str, dict[str, float]]:
    """Run one profile and uvicorn; return how much each received of a body that is too long."""
    taken: dict[str, dict[str, float]] = {}
    with (
        serving(UVICORN, scene.stores, scene.catalog_dir) as uvicorn,
        serving(profile, scene.stores, scene.catalog_dir) as server,
        sink() as copy_port,
    ):
        servers = {f"{UVICORN} beside {profile}": uvicorn, profile: server}
        for one in servers.values():  # warm up
            for _ in range(3):
                upload(one.port, scene.keys[0], MB)
        for round_number in range(options.rounds):
            key = scene.keys[round_number % len(scene.keys)]
            for size_mb in SIZES_MB:
                copied = (copy_rate(copy_port, size_mb * MB), 0.0)
                rounds.setdefault((f"{LOOPBACK} beside {profile}", size_mb), []).append(copied)
                for name, one in servers.items():
                    rounds.setdefault((name, size_mb), []).append(weigh(one, key, size_mb * MB))
        for name, one in servers.items():
            taken[name] = {
                kind: taken_before_413(one.port, scene.keys[0], is_chunked=kind == "chunked")
                for kind in ("announced", "chunked")
            }
    return taken


def weigh(server: Server, key: str, n_bytes: int) -> tuple[float, float]:
    """Upload once; return MB per second, and the peak growth of the server's memory in bodies."""
    pids = [server.pid, *descendants(server.pid).values()]
    before = {pid: reset_peak(pid) for pid in pids}
    seconds = upload(server.port, key, n_bytes)
    grown = sum(max(0, memory_bytes(pid, "VmHWM") - rss) for pid, rss in before.items())
    return n_bytes / MB / seconds, grown / n_bytes


def reset_peak(pid: int) -> int:
    """Reset a process's peak memory; return what it has now, in bytes."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return memory_bytes(pid, "VmRSS")


def memory_bytes(pid: int, field: str) -> int:
    """Read a memory figure of a process; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def wav_of(samples: bytes) -> bytes:
    """Put the header of a WAV file before 16-bit stereo samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((2, 2, 44_100, 0, "NONE", ""))
        out.writeframes(samples)
    return file.getvalue()


def upload(port: int, key: str, n_bytes: int) -> float:
    """Send a body that has not been sent before; return the seconds to the answer.

    Raises:
        RuntimeError: It was not accepted.
    """
    body = wav_of(secrets.token_bytes(1024) + bytes(n_bytes - 1024 - WAV_HEAD_BYTES))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_LIMIT_S)
    begun_s = time.perf_counter()
    connection.request(
        "POST",
        "/v1/assets/upload",
        body,
        {"Authorization": f"Bearer {key}", "Content-Type": "audio/mpeg"},
    )
    answer = connection.getresponse()
    text = answer.read()
    seconds = time.perf_counter() - begun_s
    connection.close()
    if answer.status != 201:
        raise RuntimeError(f"upload answered {answer.status}: {text[:200]!r}")
    return seconds


def taken_before_413(port: int, key: str, *, is_chunked: bool) -> float:
    """Send four times the limit until 413 comes; return what was received, in limits.

    Raises:
        RuntimeError: Another answer, or none.
    """
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {4 * LIMIT_BYTES}"
    head = (
        f"POST /v1/assets/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: audio/mpeg\r\n{length}\r\n\r\n"
    )
    piece = bytes(PIECE)
    framed = memoryview(b"%x\r\n%b\r\n" % (PIECE, piece) if is_chunked else piece)
    n_sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_LIMIT_S) as peer:
        peer.sendall(head.encode())
        with suppress(ConnectionError):
            while n_sent < 4 * LIMIT_BYTES and not has_answer(peer):
                n_sent += peer.send(framed[n_sent % len(framed) :])
        status = peer.recv(4096)[9:12]
    if status != b"413":
        raise RuntimeError(f"an upload over the limit was answered {status!r}")
    return n_sent / LIMIT_BYTES


def has_answer(peer: socket.socket) -> bool:
    """Wait until more can be sent or an answer can be read; return which.

    Raises:
        TimeoutError: Neither, for too long.
    """
    readable, writable, _ = select.select([peer], [peer], [], ANSWER_LIMIT_S)
    if not readable and not writable:
        raise TimeoutError("the server neither reads nor answers")
    return bool(readable)


@contextmanager
def sink() -> Iterator[int]:
    """Accept connections and bytes until the block ends, and answer each with a byte."""

    def take(listener: socket.socket) -> None:
        buffer = bytearray(PIECE)
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer:
                    left = int.from_bytes(peer.recv(8, socket.MSG_WAITALL))
                    while left > 0:
                        left -= peer.recv_into(buffer)
                    peer.sendall(b"k")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=take, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def copy_rate(port: int, n_bytes: int) -> float:
    """Send bytes to the sink; return MB per second."""
    body = os.urandom(1024) + bytes(n_bytes - 1024)
    begun_s = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_LIMIT_S) as peer:
        peer.sendall(n_bytes.to_bytes(8))
        peer.sendall(body)
        peer.recv(1)
    return n_bytes / MB / (time.perf_counter() - begun_s)


def summarise(rounds: Rounds, taken: Mapping[str, Mapping[str, float]], options: Options) -> Result:
    """Compile the figures."""
    rows: list[tuple[str, int, float, float, float]] = []
    values: dict[str, dict[str, float]] = {}
    for (name, size_mb), measured in rounds.items():
        profile = name.rpartition("beside ")[2]
        base = rounds[f"{UVICORN} beside {profile}", size_mb]
        rates = [rate for rate, _ in measured]
        ratio = median_ratio(rates, [rate for rate, _ in base])
        rate = statistics.median(rates)
        memory = max(memory for _, memory in measured)
        rows.append((name, size_mb, rate, ratio, memory))
        values[f"{name}, {size_mb} MB"] = {
            "mb_per_s": round(rate, 1),
            "ratio_to_uvicorn": round(ratio, 4),
            "peak_memory_in_bodies": round(memory, 3),
        }
    worst_memory = max(row[4] for row in rows if row[0] in PROFILES)
    worst_taken = max(max(taken[profile].values()) for profile in PROFILES)
    return Result(
        NAME,
        values={
            "uploads": values,
            "taken_before_413_in_limits": {
                name: {kind: round(value, 3) for kind, value in kinds.items()}
                for name, kinds in taken.items()
            },
            "limit_bytes": LIMIT_BYTES,
            "rounds": options.rounds,
        },
        columns=("server", "MB", "MB/s", "of uvicorn", "peak memory / body"),
        rows=rows,
        targets=(
            Target("peak memory / body", worst_memory, MOST_MEMORY, at_least=False),
            Target("taken before 413 / limit", worst_taken, MOST_TAKEN, at_least=False),
        ),
        draw=lambda axes: _draw(axes, rows),
    )


def _draw(axes: "Axes", rows: list[tuple[str, int, float, float, float]]) -> None:
    names = [f"{name}, {size_mb} MB" for name, size_mb, *_ in rows]
    axes.barh(names[::-1], [row[2] for row in rows][::-1])
    axes.set(xscale="log", xlabel="MB per second, one client", title="Uploads")
