"""Passing decoded audio from one Serve deployment to another: nested reference against by value.

Runs in throughput mode (gRPC between replicas, as in production), in its own process because the
mode is an environment variable; the message limit is raised so that passing by value works at all.
The limit of both is a copy of the same bytes in memory.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Options, Result, Target

NAME = "handoff"

SIZES_MB = (5, 17)
CALLS = 15
WAYS = ("by value", "top-level ref", "nested ref")


class Receiver:
    """Reads the samples, wherever they are."""

    async def by_value(self, samples: NDArray[np.float32]) -> float:
        """Take the samples themselves; a top-level reference also arrives as samples."""
        return float(samples[::4096].sum())

    async def by_reference(self, references: list[Any]) -> float:
        """Fetch the samples from the object store."""
        return float((await references[0])[::4096].sum())


class Sender:
    """Calls the receiver from inside a replica."""

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver

    async def time_calls(self, way: str, n_bytes: int) -> list[float]:
        """Return the seconds of each of `CALLS` calls, with the samples in the store beforehand."""
        import ray

        samples = np.ones(n_bytes // 4, np.float32)
        reference = ray.put(samples)
        times_s = []
        for _ in range(CALLS + 2):
            begun_s = time.perf_counter()
            if way == "by value":
                await self._receiver.by_value.remote(samples)
            elif way == "top-level ref":
                await self._receiver.by_value.remote(reference)
            else:
                await self._receiver.by_reference.remote([reference])
            times_s.append(time.perf_counter() - begun_s)
        return times_s[2:]

    async def time_put(self, n_bytes: int) -> float:
        """Return the median seconds of putting the samples into the store."""
        import ray

        samples = np.ones(n_bytes // 4, np.float32)
        return _median_s(lambda: ray.put(samples))


def _median_s(work: Any) -> float:
    times_s = []
    for _ in range(CALLS):
        begun_s = time.perf_counter()
        work()
        times_s.append(time.perf_counter() - begun_s)
    return statistics.median(times_s)


def measure(rounds: int) -> dict[str, list[float]]:
    """Run all rounds: size and way → milliseconds per round."""
    import ray
    from ray import serve

    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=4)
    try:
        serve.start(proxy_location="Disabled")
        receiver: Any = serve.deployment(Receiver, ray_actor_options={"num_cpus": 0.5})
        sender: Any = serve.deployment(Sender, ray_actor_options={"num_cpus": 0.5})
        handle = serve.run(sender.bind(receiver.bind()), name="bench-handoff", route_prefix=None)
        return asyncio.run(_rounds(handle, rounds))
    finally:
        ray.shutdown()


async def _rounds(handle: Any, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for size in SIZES_MB:
            for way in WAYS:
                times_s = await handle.time_calls.remote(way, size * 10**6)
                found.setdefault(f"{size} MB {way}", []).append(1000 * statistics.median(times_s))
            put_s = await handle.time_put.remote(size * 10**6)
            found.setdefault(f"{size} MB put", []).append(1000 * put_s)
            samples = np.ones(size * 10**6 // 4, np.float32)
            found.setdefault(f"{size} MB copy", []).append(1000 * _median_s(samples.copy))
    return found


def run(options: Options) -> Result:
    """Measure in a fresh process, and compare."""
    environment = os.environ | {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(64 << 20),
        "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "disabled"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    finished = subprocess.run(  # noqa: S603 - this very module
        [sys.executable, "-m", "benchmarks.serving.handoff", str(options.rounds)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, list[float]] = json.loads(finished.stdout.splitlines()[-1])
    medians = {name: round(statistics.median(values), 3) for name, values in found.items()}
    ratio = statistics.median(
        value / nested
        for value, nested in zip(found["17 MB by value"], found["17 MB nested ref"], strict=True)
    )
    return Result(
        NAME,
        values={
            "nested_to_by_value_17_mb": round(ratio, 3),
            "milliseconds": medians,
            "rounds": options.rounds,
        },
        columns=("way", *(f"{size} MB, ms" for size in SIZES_MB)),
        rows=[
            (way, *(medians[f"{size} MB {way}"] for size in SIZES_MB))
            for way in (*WAYS, "put", "copy")
        ],
        targets=(Target("by value / nested ref, 17 MB", ratio, 10.0),),
    )


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(measure(int(sys.argv[1]))) + "\n")
