"""Seconds of audio embedded per second on a GPU, through the batcher, against its limits.

Peers are eager single precision and a bare loop over the compiled network; the limit is the rate at
which this GPU multiplies large bfloat16 matrices, measured here. Random weights: speed does not
depend on them. On a bare node: ``python -m benchmarks.gpu.embed``.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.gpu.subjects import Subject, subjects
from benchmarks.report import Options, Result, Target, as_json, interleave, median_ratio
from pipelines.batching.batcher import Batcher
from pipelines.batching.device import TorchDevice

NAME = "gpu-embed"

GFLOP_PER_WINDOW = {"mert-95m": 109.0, "ast": 261.0}
"""Forward of one window, counted analytically: 5 s for MERT, 10.24 s for AST."""

BATCH = 64
ROUND_S = 2.0
MATRIX = 8192


def run(options: Options) -> Result:
    """Measure both trunks, where there is a GPU."""
    if not torch.cuda.is_available():
        return Result(NAME, skipped="there is no CUDA device here")
    device = torch.device("cuda")
    gemm = gemm_flop_per_s(device, MATRIX)
    rows, by_model, targets = [], {}, []
    for subject in subjects():
        if subject.name not in GFLOP_PER_WINDOW:
            continue
        found = compare(subject, device, BATCH, options.rounds, ROUND_S, compiled=True)
        share = found["batcher"] * GFLOP_PER_WINDOW[subject.name] * 1e9 / gemm
        of_loop, of_single = found["batcher / bare loop"], found["batcher / one at a time"]
        audio_s = found["batcher"] * subject.n_samples / subject.sample_rate
        rows.append((subject.name, audio_s, share, of_loop, of_single))
        by_model[subject.name] = {
            "audio_s_per_s": audio_s,
            "share_of_matrix_rate": share,
            **found,
        }
        targets += [
            Target(f"{subject.name}: share of matrix rate", share, 0.45),
            Target(f"{subject.name}: batcher / bare loop", of_loop, 0.95),
            Target(f"{subject.name}: batcher / one at a time", of_single, 16.0),
        ]
    return Result(
        NAME,
        values={
            "matrix_tflop_per_s": gemm / 1e12,
            "batch": BATCH,
            "rounds": options.rounds,
            "by_model": by_model,
        },
        columns=("model", "audio s/s", "of matrix rate", "of bare loop", "of one at a time"),
        rows=rows,
        targets=targets,
    )


def compare(
    subject: Subject,
    device: torch.device,
    batch: int,
    rounds: int,
    round_s: float,
    *,
    compiled: bool,
) -> dict[str, float]:
    """Median windows per second of every contender, and the ratios of the batcher to its peers."""
    network = subject.build(device)
    windows = subject.windows(1).repeat(batch, 1)
    single = partial(loop_rate, network, windows.to(device), round_s)
    eager_rate = statistics.median(interleave({"eager": single}, rounds)["eager"])
    if subject.has_bfloat16:
        vars(network)["dtype"] = torch.bfloat16
    fast: nn.Module = torch.compile(network, dynamic=False) if compiled else network  # type: ignore[assignment]
    contenders: dict[str, Callable[[], float]] = {
        "one at a time": partial(loop_rate, network, windows[:1].to(device), round_s),
        "bare loop": partial(loop_rate, fast, windows.to(device), round_s),
        "batcher": partial(served_rate, fast, windows, device, round_s),
    }
    found = interleave(contenders, rounds)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    return medians | {
        "eager float32": eager_rate,
        "batcher / bare loop": median_ratio(found["batcher"], found["bare loop"]),
        "batcher / one at a time": median_ratio(found["batcher"], found["one at a time"]),
    }


@torch.inference_mode()
def loop_rate(network: nn.Module, windows: Tensor, duration_s: float, n_ahead: int = 4) -> float:
    """Windows per second of a bare loop over one batch that lies on the device.

    The host may run ``n_ahead`` batches ahead of the device.
    """
    _wait(network(windows))
    n_runs, begun_s = 0, time.perf_counter()
    while time.perf_counter() - begun_s < duration_s:
        for _ in range(n_ahead):
            outputs = network(windows)
        _wait(outputs)
        n_runs += n_ahead
    return n_runs * len(windows) / (time.perf_counter() - begun_s)


def served_rate(
    network: nn.Module, windows: Tensor, device: torch.device, duration_s: float
) -> float:
    """Windows per second through the batcher, which always has three batches waiting."""
    n = len(windows)

    async def serve() -> float:
        torch_device = TorchDevice(device)
        batcher = Batcher(network, n, 8 * n, torch_device, batch_sizes=(n,))
        await batcher.submit(windows)
        end_s = time.perf_counter() + duration_s
        n_done = 0

        async def caller() -> None:
            nonlocal n_done
            while time.perf_counter() < end_s:
                await batcher.submit(windows)
                n_done += n

        begun_s = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(4)))
        rate = n_done / (time.perf_counter() - begun_s)
        torch_device.close()
        return rate

    return asyncio.run(serve())


@torch.inference_mode()
def gemm_flop_per_s(device: torch.device, size: int) -> float:
    """Measured rate of a square bfloat16 matrix product: the best of five."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(5):
        begun_s = time.perf_counter()
        for _ in range(8):
            product = a @ b
        product[0, 0].item()
        best = max(best, 8 * 2 * size**3 / (time.perf_counter() - begun_s))
    return best


def _wait(outputs: dict[str, Tensor]) -> None:
    next(iter(outputs.values())).flatten()[0].item()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(as_json(run(Options())), indent=2) + "\n")
