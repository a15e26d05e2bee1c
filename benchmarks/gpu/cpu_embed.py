"""MERT-sized embedding on one CPU thread in bfloat16: through the batcher, against a bare loop.

The limit is the rate at which one thread multiplies bfloat16 matrices, measured here. Random
weights: speed does not depend on them.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from benchmarks.gpu.roofs import gemm_flop_per_s
from benchmarks.gpu.served import CALLERS, gflop_per_window, loop_rate
from benchmarks.gpu.subjects import Subject, networks
from benchmarks.report import Options, Result, Target, interleave, median_ratio
from models.precision import halve_weights
from pipelines.batching.batcher import Batcher
from pipelines.batching.device import TorchDevice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "cpu-embed"

MODEL = "mert-95m"
BATCH = 2
ROUND_S, QUICK_S = 8.0, 3.0
MATRIX = 2048
LEAST_OF_LOOP = 0.9


def run(options: Options) -> Result:
    """Measure on one thread."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        subject = next(one for one in networks() if one.name == MODEL)
        return measure(subject, QUICK_S if options.is_quick else ROUND_S, options)
    finally:
        torch.set_num_threads(n_threads)


def measure(subject: Subject, round_s: float, options: Options) -> Result:
    """Compare the batcher with the loop and with the matrix rate, in interleaved rounds."""
    cpu = torch.device("cpu")
    network = subject.build(cpu)
    gflop = gflop_per_window(network, subject)
    network = half(network)
    windows = subject.windows(1).repeat(BATCH, 1)
    contenders: dict[str, Callable[[], float]] = {
        "bare loop": partial(loop_rate, network, windows, round_s, 1),
        "batcher": partial(batched_rate, network, windows, round_s),
        "matrix": partial(gemm_flop_per_s, cpu, MATRIX),
    }
    found = interleave(contenders, options.rounds)
    of_loop = median_ratio(found["batcher"], found["bare loop"])
    of_limit = median_ratio([rate * gflop * 1e9 for rate in found["batcher"]], found["matrix"])
    window_s = subject.n_samples / subject.sample_rate
    audio_s = {name: window_s * statistics.median(found[name]) for name in ("batcher", "bare loop")}
    rows = [
        ("batcher", audio_s["batcher"], of_loop, of_limit),
        ("bare loop", audio_s["bare loop"], 1.0, of_limit / of_loop),
    ]
    return Result(
        NAME,
        values={
            "model": subject.name,
            "batcher_to_bare_loop": round(of_loop, 4),
            "share_of_matrix_rate": round(of_limit, 4),
            "audio_s_per_s": {name: round(value, 3) for name, value in audio_s.items()},
            "matrix_gflop_per_s": round(statistics.median(found["matrix"]) / 1e9, 1),
            "batch": BATCH,
            "rounds": options.rounds,
        },
        columns=("contender", "audio s/s", "of bare loop", "of matrix rate"),
        rows=rows,
        targets=(Target("batcher / bare loop", of_loop, LEAST_OF_LOOP),),
        draw=lambda axes: _draw(axes, audio_s),
    )


def batched_rate(network: nn.Module, windows: Tensor, duration_s: float) -> float:
    """Windows per second through the batcher, with always three batches waiting."""
    n = len(windows)

    async def serve() -> float:
        device = TorchDevice("cpu")
        batcher = Batcher(network, n, 8 * n, device, batch_sizes=(n,))
        await batcher.submit(windows)
        begun_s = time.perf_counter()
        n_done = 0

        async def caller() -> None:
            nonlocal n_done
            while time.perf_counter() < begun_s + duration_s:
                await batcher.submit(windows)
                n_done += n

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        rate = n_done / (time.perf_counter() - begun_s)
        device.close()
        return rate

    return asyncio.run(serve())


def half(network: nn.Module) -> nn.Module:
    """Convert a transformer's trunk to bfloat16, as the deployments do."""
    if "precision" in vars(network):
        vars(network)["precision"] = torch.bfloat16
        halve_weights(network)
    return network


def _draw(axes: "Axes", audio_s: dict[str, float]) -> None:
    axes.bar(list(audio_s), list(audio_s.values()), 0.5)
    axes.axhline(1.0, color="tab:gray", linestyle="--")
    axes.set(ylabel="seconds of audio per second", title=f"{MODEL}, bfloat16, one CPU thread")
