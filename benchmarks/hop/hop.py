"""What Serve's proxy and each call between deployments cost, against the same app on uvicorn.

Closed loop over keep-alive connections; an echo in the ingress, behind one deployment and behind
two, in Serve's default mode and in the throughput profile; then single handle calls timed inside
the ingress, next to a bare call. LitServe is added if ``$AFA_PEERS_PYTHON`` has it.
"""

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.harness.load import Load, Measured, request_text, run_load
from benchmarks.hop.server import PATHS
from benchmarks.report import Options, Result, Target, median_ratio
from benchmarks.server_process import (
    LOCAL,
    THROUGHPUT,
    UVICORN,
    free_port,
    launched,
    wait_for_port,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "hop"

LITSERVE = "litserve"
CONNECTIONS = 64
DURATION_S, QUICK_S = 2.0, 1.0
START_LIMIT_S = 60.0
LEAST_ECHO, LEAST_ONE_HOP = 0.25, 0.10

Rounds = dict[tuple[str, str], list[tuple[Measured, Measured]]]
"""(contender, path) → figures of many clients and of one client, for each round."""


def run(options: Options) -> Result:
    """Measure both profiles, each in rounds that alternate with uvicorn."""
    found = {profile: compare(profile, options) for profile in (LOCAL, THROUGHPUT)}
    return summarise(found, options)


def compare(profile: str, options: Options) -> tuple[Rounds, dict[str, float]]:
    """Load one profile, uvicorn and LitServe in turn; also return the times inside the ingress."""
    rounds: Rounds = {}
    with ExitStack() as stack:
        ports = {
            UVICORN: stack.enter_context(server(UVICORN)),
            profile: stack.enter_context(server(profile)),
        }
        python = os.environ.get("AFA_PEERS_PYTHON")
        if python and has_litserve(python):
            ports[LITSERVE] = stack.enter_context(litserve(python))
        for contender in ports:  # warm up
            for path in paths_of(contender):
                measure(contender, ports[contender], path, 0.5)
        for _ in range(options.rounds):
            for path in PATHS:
                for contender, port in ports.items():
                    if path in paths_of(contender):
                        duration_s = QUICK_S if options.is_quick else DURATION_S
                        rounds.setdefault((contender, path), []).append(
                            measure(contender, port, path, duration_s)
                        )
        inside = [ask_inside(ports[profile]) for _ in range(options.rounds)]
    return rounds, {
        name: statistics.median(one[name] for one in inside) for name in ("bare_ms", "hop_ms")
    }


def paths_of(contender: str) -> tuple[str, ...]:
    """Return the paths that a contender has."""
    return ("echo",) if contender == LITSERVE else tuple(PATHS)


def measure(contender: str, port: int, path: str, duration_s: float) -> tuple[Measured, Measured]:
    """Load with many clients, then with one."""
    if contender == LITSERVE:
        request = request_text("POST", "/predict", "", json.dumps({"ok": True}))
    else:
        request = request_text("GET", PATHS[path], "")
    many = run_load(Load(port, [request], CONNECTIONS, duration_s))
    return many, run_load(Load(port, [request], 1, duration_s / 2))


def ask_inside(port: int) -> dict[str, float]:
    """Let the ingress time its own calls."""
    with urlopen(f"http://127.0.0.1:{port}/inside", timeout=60) as answer:
        times: dict[str, float] = json.load(answer)
    return times


@contextmanager
def server(profile: str) -> Iterator[int]:
    """Run the echo until the block ends; yields its port."""
    port = free_port()
    plan = {"server": "uvicorn" if profile == UVICORN else "serve", "port": port}
    with launched("benchmarks.hop.server", plan, profile):
        wait_for_port(port)
        yield port


def has_litserve(python: str) -> bool:
    """Return whether this Python has LitServe."""
    done = subprocess.run([python, "-c", "import litserve"], capture_output=True)  # noqa: S603
    return done.returncode == 0


@contextmanager
def litserve(python: str) -> Iterator[int]:
    """Run LitServe until the block ends; yields its port."""
    port = free_port()
    script = Path(__file__).with_name("litserve_echo.py")
    process = subprocess.Popen(  # noqa: S603 - our own file
        [python, str(script), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        end_s = time.monotonic() + START_LIMIT_S
        while not is_healthy(port):
            if time.monotonic() > end_s:
                raise TimeoutError("LitServe does not answer")
            time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its workers outlive a polite request
        process.wait()


def is_healthy(port: int) -> bool:
    """Query LitServe's health route."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def summarise(found: Mapping[str, tuple[Rounds, Mapping[str, float]]], options: Options) -> Result:
    """Compile the figures."""
    rows: list[tuple[str, str, float, float, float]] = []
    profiles: dict[str, dict[str, object]] = {}
    ratios: dict[tuple[str, str], float] = {}
    for profile, (rounds, inside) in found.items():
        figures: dict[str, dict[str, float]] = {}
        for (contender, path), measured in rounds.items():
            base = [many.per_s for many, _ in rounds[UVICORN, path]]
            ratio = median_ratio([many.per_s for many, _ in measured], base)
            per_s = statistics.median(many.per_s for many, _ in measured)
            p50_ms = statistics.median(one.p50_ms for _, one in measured)
            ratios[contender, path] = ratio
            figures[f"{contender}, {path}"] = {
                "per_s": round(per_s, 1),
                "one_client_p50_ms": round(p50_ms, 3),
                "ratio_to_uvicorn": round(ratio, 4),
            }
            beside = f" (beside {profile})" if contender in (UVICORN, LITSERVE) else ""
            rows.append((contender + beside, path, per_s, p50_ms, ratio))
        profiles[profile] = {
            "http": figures,
            "inside": {name: round(value, 4) for name, value in inside.items()},
        }
        rows.append((profile, "handle call inside", 0.0, inside["hop_ms"], 0.0))
    return Result(
        NAME,
        values={"profiles": profiles, "connections": CONNECTIONS, "rounds": options.rounds},
        columns=("server", "path", "req/s", "1 client p50, ms", "of uvicorn"),
        rows=rows,
        targets=(
            Target("echo, throughput profile", ratios[THROUGHPUT, "echo"], LEAST_ECHO),
            Target("one hop, throughput profile", ratios[THROUGHPUT, "one hop"], LEAST_ONE_HOP),
        ),
        draw=lambda axes: _draw(axes, rows),
    )


def _draw(axes: "Axes", rows: list[tuple[str, str, float, float, float]]) -> None:
    shown = [row for row in rows if row[2]]
    names = [f"{contender}: {path}" for contender, path, *_ in shown]
    axes.barh(names[::-1], [row[2] for row in shown][::-1])
    axes.set(
        xscale="log",
        xlabel=f"requests per second, {CONNECTIONS} connections",
        title="Proxy and hops",
    )
