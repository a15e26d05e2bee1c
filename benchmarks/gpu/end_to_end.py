"""Files to embedding vectors on a GPU: decoding, windows and the batched network together.

The peers are its two halves alone on the same machine: decoding and cutting windows with nothing
behind, and the network with its windows ready; the limit is the slower of them. Random weights. On
a bare node, ``python -m benchmarks.gpu.end_to_end``: without PyAV the files are raw samples at the
network's rate, which the result tells.
"""

import asyncio
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.gpu.subjects import Subject, subjects
from benchmarks.report import Options, Result, Target, as_json, interleave, median_ratio
from benchmarks.signals import encode, music_like
from models.trunks.precision import halve_weights
from pipelines.analysis.embedding import unit_vector
from pipelines.audio.decode import DecodeLimits, Decoder
from pipelines.audio.resample import resample
from pipelines.audio.waveform import SAMPLE_RATE
from pipelines.batching.backfill import backfill
from pipelines.batching.batcher import Batcher
from pipelines.batching.device import TorchDevice
from pipelines.batching.windows import WindowSpec, cut, window_starts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gpu-e2e"

MODEL = "mert-95m"
N_FILES, QUICK_FILES = 64, 16
DURATION_S = 180.0
BATCH = 64
LEAST_SHARE = 0.85

Read = Callable[[Path], Tensor]
"""File to its windows ``[W, T]``."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files and how they become windows."""

    path: Path
    kind: str
    read: Read


def run(options: Options) -> Result:
    """Measure, where there is a GPU."""
    if not torch.cuda.is_available():
        return Result(NAME, skipped="there is no CUDA device here")
    subject = next(one for one in subjects() if one.name == MODEL)
    device = torch.device("cuda")
    network = subject.build(device)
    vars(network)["dtype"] = torch.bfloat16
    halve_weights(network)
    compiled: nn.Module = torch.compile(network, dynamic=False)  # type: ignore[assignment]
    n_files = QUICK_FILES if options.is_quick else N_FILES
    with prepared_files(subject) as files:
        return measure(compiled, device, files, n_files, options)


@contextmanager
def prepared_files(subject: Subject) -> Iterator[Files]:
    """Write a track and give the way to read it; the same file is read over and over."""
    spec = WindowSpec(subject.sample_rate, subject.n_samples, subject.n_samples)
    samples = music_like(DURATION_S)
    with tempfile.TemporaryDirectory(prefix="afa-bench-") as name:
        path = Path(name) / "audio"
        if importlib.util.find_spec("av") is None:
            n = int(DURATION_S * spec.sample_rate)
            mono = np.interp(
                np.arange(n) / spec.sample_rate,
                np.arange(samples.shape[1]) / SAMPLE_RATE,
                samples.mean(axis=0),
            )
            np.save(path, (32_767 * mono).astype(np.int16))
            yield Files(path.with_suffix(".npy"), "raw int16, no decoder", partial(_load, spec))
            return
        encode(path, samples, "mp3", "libmp3lame", "fltp", 320_000)
        decoder = Decoder()
        try:
            yield Files(path, "MP3 320k", partial(_decode, decoder, spec))
        finally:
            decoder.close()


def _load(spec: WindowSpec, path: Path) -> Tensor:
    stored: NDArray[np.int16] = np.load(path)
    return _windows(stored.astype(np.float32) / np.float32(32_768), spec)


def _decode(decoder: Decoder, spec: WindowSpec, path: Path) -> Tensor:
    waveform = decoder.decode(path, DecodeLimits())
    return _windows(resample(waveform.mono(), SAMPLE_RATE, spec.sample_rate), spec)


def _windows(samples: NDArray[np.float32], spec: WindowSpec) -> Tensor:
    return cut(samples, window_starts(len(samples), spec), spec.length)


def measure(
    network: nn.Module, device: torch.device, files: Files, n_files: int, options: Options
) -> Result:
    """Compare the whole with its halves, in interleaved rounds."""
    n_threads = os.cpu_count() or 1
    windows = files.read(files.path)
    audio_s = n_files * DURATION_S
    busy: list[float] = []
    with ThreadPoolExecutor(n_threads) as readers:

        def decode_only() -> float:
            begun_s = time.perf_counter()
            list(readers.map(files.read, [files.path] * n_files))
            return audio_s / (time.perf_counter() - begun_s)

        def whole(read: Read) -> float:
            seconds, device_s = asyncio.run(serve(network, device, read, [files.path] * n_files))
            busy.append(device_s / seconds)
            return audio_s / seconds

        whole(lambda _: windows)  # compiles and warms up
        contenders: dict[str, Callable[[], float]] = {
            "decode alone": decode_only,
            "network alone": partial(whole, lambda _: windows),
            "files to vectors": partial(whole, files.read),
        }
        found = interleave(contenders, options.rounds)
    limits = [min(pair) for pair in zip(found["decode alone"], found["network alone"], strict=True)]
    share = median_ratio(found["files to vectors"], limits)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    return Result(
        NAME,
        values={
            "share_of_slower_half": round(share, 4),
            "audio_s_per_s": {name: round(rate, 1) for name, rate in medians.items()},
            "device_busy": round(statistics.median(busy[2::2]), 4),
            "files": files.kind,
            "n_files": n_files,
            "decode_threads": n_threads,
            "model": MODEL,
            "batch": BATCH,
            "rounds": options.rounds,
        },
        columns=("contender", "audio s/s"),
        rows=list(medians.items()),
        targets=(Target("files to vectors / slower half", share, LEAST_SHARE),),
        draw=lambda axes: _draw(axes, medians),
    )


async def serve(
    network: nn.Module, device: torch.device, read: Read, paths: Sequence[Path]
) -> tuple[float, float]:
    """Read and embed every file as `afa embed` does.

    Returns:
        Wall-clock seconds, and seconds of device time.
    """
    torch_device = TorchDevice(device)
    batcher = Batcher(network, BATCH, 1_000_000, torch_device, batch_sizes=(BATCH,))

    async def embed(windows: Tensor) -> Tensor:
        outputs = await batcher.submit(windows)
        return unit_vector(outputs["embedding"].mean(dim=0))

    def check(_: Path, vector: Tensor | Exception) -> None:
        if isinstance(vector, Exception):
            raise vector

    begun_s = time.perf_counter()
    await backfill(paths, read, embed, check, batcher.wants_more)
    seconds = time.perf_counter() - begun_s
    torch_device.close()
    return seconds, batcher.metrics().device_s


def _draw(axes: "Axes", medians: dict[str, float]) -> None:
    axes.bar(list(medians), list(medians.values()), 0.5)
    axes.set(ylabel="seconds of audio per second", title=f"Files to vectors, {MODEL}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(as_json(run(Options())), indent=2) + "\n")
