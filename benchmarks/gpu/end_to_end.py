"""Files to embedding vectors on a GPU: decoding, windows and the served network together.

The peers are its two halves alone on the same machine: decoding and cutting windows with nothing
after it, and the network with its windows ready; the limit is the slower of them. Random weights.
On a bare node, ``python -m benchmarks.gpu``: without PyAV the files are raw samples at the
network's rate, which the result states.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu.dry import NO_DEVICE, device_for, kernels
from benchmarks.gpu.roofs import bound, measure_roofs
from benchmarks.gpu.served import Served, served
from benchmarks.gpu.track_file import TrackFile, track_file
from benchmarks.report import Options, Result, Target, interleave, median_ratio
from pipelines.analysis.records import EmbeddingResult
from pipelines.batching.backfill import backfill
from pipelines.batching.steps import Prepared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gpu-e2e"

MODEL = "mert-95m"
N_FILES, QUICK_FILES, DRY_FILES = 64, 16, 2
LEAST_SHARE = 0.85


def run(options: Options) -> Result:
    """Measure, if there is a GPU."""
    device = device_for(options)
    if device is None:
        return Result(NAME, skipped=NO_DEVICE)
    n_files = DRY_FILES if options.is_dry else QUICK_FILES if options.is_quick else N_FILES
    with (
        kernels(options),
        served(MODEL, device, options) as of,
        track_file(of.subject.sample_rate, options) as file,
    ):
        return measure(of, file, n_files, options)


def measure(of: Served, file: TrackFile, n_files: int, options: Options) -> Result:
    """Compare the whole with its halves, in interleaved rounds."""
    n_threads = os.cpu_count() or 1
    audio_s = n_files * file.duration_s
    busy: list[float] = []

    def read(path: Path) -> Prepared:
        return of.step.prepare(file.read(path))

    windows = read(file.path)
    with ThreadPoolExecutor(n_threads) as readers, asyncio.Runner() as runner:
        runner.run(of.step.compile())

        def decode_only() -> float:
            begun_s = time.perf_counter()
            list(readers.map(read, [file.path] * n_files))
            return audio_s / (time.perf_counter() - begun_s)

        def whole(read: Callable[[Path], Prepared]) -> float:
            before_s = device_s(of)
            seconds = runner.run(embed_all(of, read, [file.path] * n_files))
            busy.append((device_s(of) - before_s) / seconds)
            return audio_s / seconds

        whole(lambda _: windows)  # warms up
        contenders: dict[str, Callable[[], float]] = {
            "decode alone": decode_only,
            "network alone": lambda: whole(lambda _: windows),
            "files to vectors": lambda: whole(read),
        }
        found = interleave(contenders, options.rounds)
        roofs = measure_roofs(of.device, lambda: (read(file.path), file.duration_s)[1], options)
    limits = [min(pair) for pair in zip(found["decode alone"], found["network alone"], strict=True)]
    share = median_ratio(found["files to vectors"], limits)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    shares = {name: roofs.shares(rate / of.window_s, of) for name, rate in medians.items()}
    of_whole = shares["files to vectors"]
    return Result(
        NAME,
        values={
            "share_of_slower_half": share,
            "audio_s_per_s": medians,
            "shares": of_whole,
            "bound_by": bound(of_whole),
            "device_busy": statistics.median(busy[2::2]),
            "roofs": roofs.as_values(),
            "files": file.kind,
            "n_files": n_files,
            "decode_threads": n_threads,
            "model": MODEL,
            "batch": of.batch,
            "rounds": options.rounds,
        },
        columns=("contender", "audio s/s", "of matrix rate", "of copy roof", "of decode"),
        rows=[(name, rate, *shares[name].values()) for name, rate in medians.items()]
        + [("bound by", bound(of_whole), "", "", "")],
        targets=()
        if options.is_dry
        else (Target("files to vectors / slower half", share, LEAST_SHARE),),
        draw=lambda axes: _draw(axes, medians),
    )


def device_s(of: Served) -> float:
    """Seconds of the device's work so far."""
    return sum(metrics.device_s for metrics in of.step.metrics().values())


async def embed_all(of: Served, read: Callable[[Path], Prepared], paths: list[Path]) -> float:
    """Read and embed every file as `afa embed` does; return the seconds taken."""

    def check(_: Path, result: EmbeddingResult | Exception) -> None:
        if isinstance(result, Exception):
            raise result

    begun_s = time.perf_counter()
    await backfill(paths, read, of.step.complete, check, of.step.wants_more)
    return time.perf_counter() - begun_s


def _draw(axes: "Axes", medians: dict[str, float]) -> None:
    axes.bar(list(medians), list(medians.values()), 0.5)
    axes.set(ylabel="seconds of audio per second", title=f"Files to vectors, {MODEL}")
