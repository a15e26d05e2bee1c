"""Open-loop HTTP load from one process: ``python -m benchmarks.overload.load``, a plan on stdin.

Requests are sent at their own times whether or not earlier ones have been answered, so latencies
count from when a request was due. Prints an `Arrivals` as JSON.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

ANSWER_LIMIT_S = 60.0
FIELDS = {"error", "message", "trace_id"}


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """What to send.

    Attributes:
        port: Port of the server, on loopback.
        heads: Complete requests without their body, as Latin-1 text, sent in turn.
        body_bytes: Length of the body.
        per_s: Mean rate of the Poisson arrivals.
    """

    port: int
    heads: Sequence[str]
    body_bytes: int
    per_s: float
    duration_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came back.

    Attributes:
        n: Requests sent.
        served_s: Latency of every 200 answer.
        refused_s: Latency of every well-formed refusal: 503, our error body, ``Retry-After``.
        others: Other outcomes, and the number of each.
        taken_s: From the first request to the last 200 answer.
    """

    n: int
    served_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    taken_s: float = 0.0


async def exchange(port: int, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Send one request on its own connection; return status, headers and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    finally:
        writer.close()
    return first.split(" ")[1], headers, body


def is_well_formed(status: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether a refusal is a 503 in our format that says when to try again."""
    if status != "503" or not headers.get("retry-after", "").isdecimal():
        return False
    try:
        return set(json.loads(body)) >= FIELDS
    except (ValueError, TypeError):
        return False


async def apply_load(load: OpenLoad) -> Arrivals:
    """Send and measure."""
    rng = np.random.default_rng(load.seed)
    n = max(1, round(load.per_s * load.duration_s))
    due_s = np.cumsum(rng.exponential(1 / load.per_s, n)).tolist()
    body = bytes(load.body_bytes)
    found = Arrivals(n)
    last_s = 0.0
    begun_s = time.perf_counter()

    async def send(number: int) -> None:
        nonlocal last_s
        request = load.heads[(number + load.seed) % len(load.heads)].encode("latin-1") + body
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                status, headers, text = await exchange(load.port, request)
        except (OSError, EOFError, TimeoutError) as error:
            outcome = type(error).__name__
        else:
            now_s = time.perf_counter() - begun_s
            if status == "200":
                found.served_s.append(now_s - due_s[number])
                last_s = max(last_s, now_s)
                return
            if is_well_formed(status, headers, text):
                found.refused_s.append(now_s - due_s[number])
                return
            outcome = status
        found.others[outcome] = found.others.get(outcome, 0) + 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(n):
            await asyncio.sleep(max(0.0, due_s[number] + begun_s - time.perf_counter()))
            tasks.create_task(send(number))
    return Arrivals(n, found.served_s, found.refused_s, found.others, last_s)


def run_open_load(load: OpenLoad) -> Arrivals:
    """Apply a load from a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overload.load"],
        input=json.dumps(asdict(load)),
        capture_output=True,
        text=True,
        check=True,
        timeout=load.duration_s + 2 * ANSWER_LIMIT_S,
    )
    return Arrivals(**json.loads(done.stdout))


if __name__ == "__main__":
    plan = OpenLoad(**json.load(sys.stdin))
    sys.stdout.write(json.dumps(asdict(asyncio.run(apply_load(plan)))))
