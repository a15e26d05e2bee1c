"""Our batcher against `@serve.batch` and against a bare loop, inside a real Serve replica.

The load sweep runs a stand-in for a GPU, a forward that takes 50 ms for any batch (at most 32
windows), under open-loop Poisson arrivals, with latencies in forwards; saturation runs a small
network on one CPU thread and compares it with the same network in a bare loop before and after.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.report import Options, Result, Target, median_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "batch"

MODEL_S = 0.05
MAX_WINDOWS = 32
CAPACITY = MAX_WINDOWS / MODEL_S
WINDOW_SAMPLES = 16_000
LOW_LOAD, MIDDLE_LOAD = 10 / CAPACITY, 0.62
TIMERS_S = (0.002, 0.01, 0.05)
SWEEP = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97)
DRAIN_S = 1.0

OWN = "own"
Submit = Callable[[Tensor], Awaitable[object]]


def timer_name(timer_s: float) -> str:
    """Return the name of `@serve.batch` with one timer setting."""
    return f"serve.batch {timer_s * 1000:g} ms"


def stand_in(windows: Tensor) -> dict[str, Tensor]:
    """Take as long as a forward on a GPU, with the host idle."""
    time.sleep(MODEL_S)
    return {"row": windows[:, :1]}


class SmallNetwork(nn.Module):
    """About 250 MFLOP per window (MERT's 5 s take 400 times that), in one dense layer.

    Its activations fit into the cache: with large ones, the allocator would decide the comparison,
    not the batcher.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(1024, 1024)

    def forward(self, windows: Tensor) -> Tensor:
        """Map ``[B, T]`` to ``[B, 1024]``."""
        state = windows[:, :1024]
        for _ in range(120):
            state = torch.tanh(self.layer(state))
        return state


class Contest:
    """Lives in one replica and generates its own load, so that only batching is measured."""

    def __init__(self) -> None:
        from ray import serve

        from pipelines.batching.batcher import Batcher
        from pipelines.batching.device import TorchDevice
        from serve_app.checkpoints.freeze import freeze_loaded

        torch.set_num_threads(1)
        network = SmallNetwork().eval()

        def compute(windows: Tensor) -> dict[str, Tensor]:
            return {"vector": network(windows)}

        self._compute = compute
        forwards = {"stand-in": stand_in, "network": compute}
        self._own = {
            kind: Batcher(forward, MAX_WINDOWS, 100_000, TorchDevice("cpu"))
            for kind, forward in forwards.items()
        }

        @serve.batch(max_batch_size=MAX_WINDOWS, batch_wait_timeout_s=0.01)
        async def batched(items: list[tuple[str, Tensor]]) -> list[object]:
            def forward() -> list[object]:
                with torch.inference_mode():
                    outputs = forwards[items[0][0]](torch.cat([window for _, window in items]))
                return list(next(iter(outputs.values())))

            return await asyncio.to_thread(forward)

        self._batched: Any = batched
        freeze_loaded()

    async def open_loop(
        self, contender: str, load: float, duration_s: float, seed: int
    ) -> list[float]:
        """Return the latency (s) of every call of a Poisson stream at ``load`` of capacity."""
        submit = self._submit(contender, "stand-in")
        window = torch.zeros(1, WINDOW_SAMPLES)
        rng = np.random.default_rng(seed)
        n = max(10, int(load * CAPACITY * duration_s))
        arrivals_s = np.cumsum(rng.exponential(1 / (load * CAPACITY), n))
        latencies_s: list[float] = []
        begun_s = time.perf_counter()

        async def call(due_s: float) -> None:
            try:
                await submit(window)
            finally:
                latencies_s.append(time.perf_counter() - begun_s - due_s)

        calls = []
        for due_s in arrivals_s:
            await asyncio.sleep(max(0.0, begun_s + due_s - time.perf_counter()))
            calls.append(asyncio.create_task(call(float(due_s))))
        _, late = await asyncio.wait(calls, timeout=DRAIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(2 * MODEL_S)
        return latencies_s

    async def saturated(self, contender: str, duration_s: float) -> float:
        """Return the windows per second served to four batches' worth of callers."""
        submit = self._submit(contender, "network")
        window = torch.zeros(1, WINDOW_SAMPLES)
        n_done = 0
        end_s = time.perf_counter() + duration_s + 0.5

        async def caller() -> None:
            nonlocal n_done
            while time.perf_counter() < end_s:
                await submit(window)
                n_done += 1

        callers = [asyncio.create_task(caller()) for _ in range(4 * MAX_WINDOWS)]
        await asyncio.sleep(0.5)
        n_before, before_s = n_done, time.perf_counter()
        await asyncio.wait(callers)
        return (n_done - n_before) / (time.perf_counter() - before_s)

    async def bare_loop(self, duration_s: float) -> float:
        """Return the windows per second of the bare network over full batches."""

        def loop() -> float:
            batch = torch.zeros(MAX_WINDOWS, WINDOW_SAMPLES)
            n, begun_s = 0, time.perf_counter()
            with torch.inference_mode():
                while time.perf_counter() - begun_s < duration_s:
                    self._compute(batch)
                    n += MAX_WINDOWS
            return n / (time.perf_counter() - begun_s)

        return await asyncio.to_thread(loop)

    def _submit(self, contender: str, kind: str) -> Submit:
        if contender == OWN:
            return self._own[kind].submit
        self._batched.set_batch_wait_timeout_s(
            next(timer_s for timer_s in TIMERS_S if timer_name(timer_s) == contender)
        )
        batched = self._batched

        async def submit(window: Tensor) -> object:
            return await batched((kind, window))

        return submit


def measure(options: Options) -> dict[str, dict[str, list[Any]]]:
    """Run all rounds in a replica; contender → figure → one value per round."""
    import ray
    from ray import serve

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else others' load decides, not batching
    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2)
    try:
        serve.start(proxy_location="Disabled")
        deployment: Any = serve.deployment(Contest, max_ongoing_requests=100)
        handle = serve.run(deployment.bind(), name="bench-batch", route_prefix=None)
        return _rounds(handle, options)
    finally:
        ray.shutdown()


def _rounds(handle: Any, options: Options) -> dict[str, dict[str, list[Any]]]:
    low_s, middle_s, full_s = (2.0, 2.0, 1.5) if options.is_quick else (3.0, 4.0, 3.0)
    contenders = (OWN, *(timer_name(timer_s) for timer_s in TIMERS_S))
    found: dict[str, dict[str, list[Any]]] = {
        name: {"low_p50_s": [], "middle_p99_s": [], "saturated": [], "bare": [], "sweep": []}
        for name in contenders
    }
    for name in contenders:  # a replica's first seconds are slower than the rest
        handle.open_loop.remote(name, MIDDLE_LOAD, low_s, 0).result()
    for seed in range(options.rounds):
        first = seed % len(contenders)
        for name in contenders[first:] + contenders[:first]:
            figures = found[name]
            low = handle.open_loop.remote(name, LOW_LOAD, low_s, seed).result()
            figures["low_p50_s"].append(float(np.quantile(low, 0.5)))
            middle = handle.open_loop.remote(name, MIDDLE_LOAD, middle_s, seed).result()
            figures["middle_p99_s"].append(float(np.quantile(middle, 0.99)))
            before = handle.bare_loop.remote(full_s / 2).result()
            figures["saturated"].append(handle.saturated.remote(name, full_s).result())
            after = handle.bare_loop.remote(full_s / 2).result()
            figures["bare"].append((before + after) / 2)
    if not options.is_quick:
        for load in SWEEP:
            for name in contenders:
                latencies_s = handle.open_loop.remote(name, load, 3.0, 99).result()
                p50_s, p99_s = np.quantile(latencies_s, [0.5, 0.99])
                found[name]["sweep"].append((load, float(p50_s), float(p99_s)))
    return found


def ratios(figures: dict[str, list[Any]]) -> dict[str, float]:
    """The three ratios of one contender."""
    return {
        "saturated_ratio": round(median_ratio(figures["saturated"], figures["bare"]), 4),
        "low_load_p50_ratio": round(statistics.median(figures["low_p50_s"]) / MODEL_S, 4),
        "p99_62_ratio": round(statistics.median(figures["middle_p99_s"]) / MODEL_S, 4),
    }


def run(options: Options) -> Result:
    """Measure and compare."""
    found = measure(options)
    by_contender = {name: ratios(figures) for name, figures in found.items()}
    own = by_contender.pop(OWN)
    best = min(by_contender, key=lambda name: by_contender[name]["p99_62_ratio"])
    best_p99 = by_contender[best]["p99_62_ratio"]
    return Result(
        NAME,
        values={
            **own,
            "serve_batch": {"setting": best, **by_contender[best]},
            "serve_batch_by_setting": by_contender,
            "p99_62_ratio_to_best_serve_batch": round(own["p99_62_ratio"] / best_p99, 4),
            "model_ms": MODEL_S * 1000,
            "max_windows": MAX_WINDOWS,
            "rounds": options.rounds,
            "sweep": {name: figures["sweep"] for name, figures in found.items()},
        },
        columns=("batcher", "saturated / bare loop", "p50 at 10/s / model", "p99 at 62 % / model"),
        rows=[(name, *values.values()) for name, values in {OWN: own, **by_contender}.items()],
        targets=(
            Target("saturated_ratio", own["saturated_ratio"], 0.95),
            Target("low_load_p50_ratio", own["low_load_p50_ratio"], 1.15, at_least=False),
            Target("p99_62_ratio", own["p99_62_ratio"], 2.5, at_least=False),
            Target(
                "p99_62_ratio_to_best_serve_batch",
                own["p99_62_ratio"] / best_p99,
                1.0,
                at_least=False,
            ),
        ),
        draw=None if options.is_quick else lambda axes: _draw(axes, found),
    )


def _draw(axes: "Axes", found: dict[str, dict[str, list[Any]]]) -> None:
    for name, figures in found.items():
        loads, p50_s, p99_s = zip(*figures["sweep"], strict=True)
        (line,) = axes.plot(loads, [value / MODEL_S for value in p50_s], label=f"{name}, p50")
        axes.plot(
            loads,
            [value / MODEL_S for value in p99_s],
            linestyle="--",
            color=line.get_color(),
            label=f"{name}, p99",
        )
    axes.set(
        xlabel="offered load / capacity",
        ylabel="latency / time of a forward",
        yscale="log",
        title="Open loop, 50 ms forward, at most 32 windows",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
