"""Front-ends on a GPU against the memory roof: bytes that their kernels move, per second.

The bytes that a kernel must read and write are counted when it is dispatched (its tensor arguments
and results, without views), so the share shows how well the chain of kernels uses the memory, not
how well it is fused. The limit is the bandwidth of a large copy, measured here. On a bare node:
``python -m benchmarks.gpu``.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.dry import NO_DEVICE, device_for
from benchmarks.gpu.subjects import front_ends
from benchmarks.report import Options, Result, Target, interleave, median_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gpu-frontends"

BATCH, DRY_BATCH = 64, 1
RUNS, DRY_RUNS = 20, 1
COPY_BYTES, DRY_COPY_BYTES = 1 << 30, 1 << 16
LEAST_SHARE = 0.6


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes that kernels read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the kernel and count."""
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not func.name().startswith("aten::_unsafe_view"):
            moved = [*tensors_in(args), *tensors_in((kwargs or {}).values()), *tensors_in([result])]
            self.n_bytes += sum(tensor.numel() * tensor.element_size() for tensor in moved)
        return result


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values, and in any lists among them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(value)
    return found


@torch.inference_mode()
def traffic_bytes(network: nn.Module, windows: Tensor) -> int:
    """Count the bytes that one forward moves; warm, so that tables made once do not count."""
    network(windows)
    with Traffic() as traffic:
        network(windows)
    return int(traffic.n_bytes)


def run(options: Options) -> Result:
    """Measure every front-end, if there is a GPU."""
    device = device_for(options)
    if device is None:
        return Result(NAME, skipped=NO_DEVICE)
    return measure(device, options)


def measure(device: torch.device, options: Options) -> Result:
    """Compare every front-end with the copy, in interleaved rounds."""
    rows: list[tuple[str, float, float, float]] = []
    values: dict[str, dict[str, float]] = {}
    is_dry = options.is_dry
    batch, n_runs = (DRY_BATCH, DRY_RUNS) if is_dry else (BATCH, RUNS)
    copy_bytes = DRY_COPY_BYTES if is_dry else COPY_BYTES
    copied = torch.empty(copy_bytes // 4, device=device)
    target = torch.empty_like(copied)
    for subject in front_ends(is_small=is_dry):
        network = subject.build(device)
        windows = subject.windows(1).repeat(batch, *[1] * subject.channels).to(device)
        n_bytes = traffic_bytes(network, windows)
        contenders: dict[str, Callable[[], float]] = {
            "front-end": partial(seconds_of, partial(network, windows), device, n_runs),
            "copy": partial(seconds_of, partial(target.copy_, copied), device, n_runs),
        }
        found = interleave(contenders, options.rounds)
        bandwidths = [2 * copy_bytes / seconds for seconds in found["copy"]]
        share = median_ratio([n_bytes / seconds for seconds in found["front-end"]], bandwidths)
        seconds = statistics.median(found["front-end"])
        audio_s = batch * subject.n_samples / subject.sample_rate / seconds
        rows.append((subject.name, audio_s, n_bytes / seconds / 1e9, share))
        values[subject.name] = {
            "audio_s_per_s": round(audio_s, 1),
            "gb_per_s": round(n_bytes / seconds / 1e9, 2),
            "share_of_copy_bandwidth": round(share, 4),
            "copy_gb_per_s": round(statistics.median(bandwidths) / 1e9, 2),
        }
    return Result(
        NAME,
        values={"batch": batch, "rounds": options.rounds, "by_front_end": values},
        columns=("front-end", "audio s/s", "GB/s moved", "of copy bandwidth"),
        rows=rows,
        targets=[] if is_dry else [Target(name, share, LEAST_SHARE) for name, _, _, share in rows],
        draw=lambda axes: _draw(axes, rows),
    )


@torch.inference_mode()
def seconds_of(work: Callable[[], object], device: torch.device, n_runs: int) -> float:
    """Time one run, launched ahead and averaged over ``n_runs``."""
    work()
    _synchronise(device)
    begun_s = time.perf_counter()
    for _ in range(n_runs):
        work()
    _synchronise(device)
    return (time.perf_counter() - begun_s) / n_runs


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _draw(axes: "Axes", rows: list[tuple[str, float, float, float]]) -> None:
    axes.barh([row[0] for row in rows], [row[3] for row in rows])
    axes.axvline(LEAST_SHARE, color="tab:red", label="wanted")
    axes.set(xlabel="share of the copy bandwidth", title=f"Front-ends, batches of {BATCH}")
    axes.legend()
