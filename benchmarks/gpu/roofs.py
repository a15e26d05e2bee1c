"""The machine's limits, measured on it, and which of them bounds a rate."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from benchmarks.gpu.served import Served
from benchmarks.report import Options
from pipelines.audio.waveform import SAMPLE_RATE

MATRIX, DRY_MATRIX = 8192, 64
COPY_BYTES, DRY_COPY_BYTES = 1 << 30, 1 << 20
TRACK_BYTES_PER_S = 2 * SAMPLE_RATE
"""Bytes of a track copied to a card, if only the mean of its channels is read."""
NEAR = 0.5
"""Below this share of every roof, none of them bounds: launches and host work do."""


@dataclass(frozen=True, slots=True)
class Roofs:
    """The machine's limits.

    Attributes:
        matrix_flop_per_s: A large bfloat16 matrix product.
        copy_bytes_per_s: From pinned host memory to the device; in memory, on a CPU.
        decode_audio_s_per_s: All processors only decode and cut windows.
    """

    matrix_flop_per_s: float
    copy_bytes_per_s: float
    decode_audio_s_per_s: float

    def shares(self, windows_per_s: float, of: Served) -> dict[str, float]:
        """Return the share of each roof that a rate takes; that of decoding may exceed 1."""
        return {
            "matrix": windows_per_s * of.gflop * 1e9 / self.matrix_flop_per_s,
            "copy": windows_per_s * of.window_s * TRACK_BYTES_PER_S / self.copy_bytes_per_s,
            "decode": windows_per_s * of.window_s / self.decode_audio_s_per_s,
        }

    def as_values(self) -> dict[str, float]:
        """Return them for a result file."""
        return {
            "matrix_tflop_per_s": self.matrix_flop_per_s / 1e12,
            "copy_gb_per_s": self.copy_bytes_per_s / 1e9,
            "decode_audio_s_per_s": self.decode_audio_s_per_s,
        }


def measure_roofs(device: torch.device, read: Callable[[], float], options: Options) -> Roofs:
    """Measure all of them.

    Args:
        device: The computing device.
        read: Reads a file and cuts its windows; returns the seconds of audio in it.
        options: A dry run measures small sizes.
    """
    return Roofs(
        gemm_flop_per_s(device, DRY_MATRIX if options.is_dry else MATRIX),
        copy_bytes_per_s(device, DRY_COPY_BYTES if options.is_dry else COPY_BYTES),
        decode_rate(read, 1 if options.is_dry else 4),
    )


def bound(shares: dict[str, float]) -> str:
    """Return the name of the roof that a rate is nearest to."""
    name = max(shares, key=lambda roof: shares[roof])
    return name if shares[name] >= NEAR else "launches, host"


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


def copy_bytes_per_s(device: torch.device, n_bytes: int) -> float:
    """Measured rate of copies to the device: the best of five."""
    source = torch.zeros(n_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    target = torch.empty_like(source, device=device)
    best = 0.0
    for _ in range(5):
        begun_s = time.perf_counter()
        target.copy_(source, non_blocking=True)
        target[-1].item()
        best = max(best, n_bytes / (time.perf_counter() - begun_s))
    return best


def decode_rate(read: Callable[[], float], n_each: int) -> float:
    """Seconds of audio per second when every processor reads ``n_each`` files."""
    n_threads = os.cpu_count() or 1
    with ThreadPoolExecutor(n_threads) as threads:
        begun_s = time.perf_counter()
        audio_s = sum(threads.map(lambda _: read(), range(n_threads * n_each)))
        return audio_s / (time.perf_counter() - begun_s)
