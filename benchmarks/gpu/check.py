"""Checks that need a GPU: ``python -m benchmarks.gpu.check [--dry] [NAME …]``.

For every network and front-end: the GPU's rows against the CPU's, two runs against each other, a
window alone against the same window through the batcher, half precision against single, the same
compiled and recorded as deployments run it, and memory freed after everything is gone. Needs only
torch, torchaudio, transformers and numpy; ends with status 1 if a check failed or could not be
made, and with 0 and "skipped" if there is no GPU. ``--dry`` checks small networks on the CPU, to
show that the checks run.
"""

import asyncio
import gc
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.gpu.agreement import forward_alone, forward_served, lowest_cosine, sizes_of
from benchmarks.gpu.dry import NO_DEVICE, device_for, kernels
from benchmarks.gpu.subjects import MIN_COSINE, Subject, subjects
from benchmarks.report import Options
from models.checkpoints.cards import ModelCard
from models.precision import HalvableNetwork, TransformerNetwork
from pipelines.analysis.networks.checkpoint_model import CheckpointModel, Execution
from pipelines.batching.batcher import Batcher
from pipelines.batching.device import TorchDevice


@dataclass(frozen=True, slots=True)
class Effort:
    """Number of windows to compare, their batch size, and the batches and runs to time."""

    n_windows: int = 7
    max_windows: int = 4
    timed_batch: int = 16
    timed_runs: int = 5


FULL, DRY = Effort(), Effort(3, 2, 2, 1)
MAX_LEFT_MIB = 64.0
"""Less than any network here; libraries keep a little."""


@dataclass(frozen=True, slots=True)
class Found:
    """The results for one subject.

    Attributes:
        parity: Lowest cosine between a row and the CPU's.
        is_deterministic: Whether a second run gave the same bits.
        invariance: Lowest cosine between a window alone and through the batcher.
        bfloat16: Lowest cosine between half and single precision; None without such a mode.
        left_mib: Memory that stayed allocated after it was gone.
        alone_per_s: Windows per second, one at a time.
        batched_per_s: Windows per second in timed batches.
        compiled: Lowest cosine between half precision, compiled with CUDA graphs and through the
            batcher, and single precision; None without such a mode.
        half_cosine: Lower bound of these two.
    """

    name: str
    parity: float
    is_deterministic: bool
    invariance: float
    bfloat16: float | None
    left_mib: float
    alone_per_s: float
    batched_per_s: float
    compiled: float | None = None
    half_cosine: float = MIN_COSINE

    @property
    def failures(self) -> list[str]:
        """Names of the checks that failed."""
        checks = {
            "parity": self.parity >= MIN_COSINE,
            "determinism": self.is_deterministic,
            "invariance": self.invariance >= MIN_COSINE,
            "bfloat16": self.bfloat16 is None or self.bfloat16 >= self.half_cosine,
            "compiled": self.compiled is None or self.compiled >= self.half_cosine,
            "memory": self.left_mib <= MAX_LEFT_MIB,
        }
        return [name for name, holds in checks.items() if not holds]


def check(subject: Subject, device: torch.device, effort: Effort = FULL) -> Found:
    """Check one subject on ``device`` against the CPU."""
    windows = subject.windows(effort.n_windows)
    reference = forward_alone(subject.build(torch.device("cpu")), windows, torch.device("cpu"))
    before = _allocated(device)
    network = subject.build(device)
    alone = forward_alone(network, windows, device)
    again = forward_alone(network, windows, device)
    served = forward_served(network, windows, device, effort.max_windows)
    alone_per_s = _windows_per_s(network, subject, device, 1, effort.timed_runs)
    batched_per_s = _windows_per_s(network, subject, device, effort.timed_batch, effort.timed_runs)
    bfloat16 = compiled = None
    with _exact_half_precision(device):
        if isinstance(network, HalvableNetwork):
            network.precision = torch.bfloat16
            bfloat16 = lowest_cosine(alone, forward_alone(network, windows, device))
        is_compilable = isinstance(network, TransformerNetwork)
        del network
        if is_compilable:
            execution = Execution(torch.bfloat16, (1, effort.max_windows), cuda_graphs=True)
            outputs = sizes_of(alone)
            compiled = lowest_cosine(
                alone, forward_executed(subject, outputs, windows, device, execution)
            )
    return Found(
        subject.name,
        parity=lowest_cosine(reference, alone),
        is_deterministic=all(torch.equal(alone[name], again[name]) for name in alone),
        invariance=lowest_cosine(alone, served),
        bfloat16=bfloat16,
        left_mib=(_allocated(device) - before) / 2**20,
        alone_per_s=alone_per_s,
        batched_per_s=batched_per_s,
        compiled=compiled,
        half_cosine=subject.half_cosine,
    )


def forward_executed(
    subject: Subject,
    outputs: Mapping[str, int],
    windows: Tensor,
    device: torch.device,
    execution: Execution,
) -> dict[str, Tensor]:
    """Run a transformer as a deployment does: warmed up on the serving thread, then batched."""
    card = ModelCard(
        model_id=subject.name,
        role="embedding",
        default=False,
        network="",
        source="builtin://",
        format="none",
        files=(),
        tensors_sha256="",
        licence="",
        licence_class="permissive",
        commercial_use=True,
        attribution="",
        sample_rate=subject.sample_rate,
        front_end="",
        window_length=subject.n_samples,
        window_hop=subject.n_samples,
        outputs=outputs,
    )

    async def serve() -> dict[str, Tensor]:
        model = CheckpointModel(card, subject.build(device), device, execution=execution)
        torch_device = TorchDevice(device)
        try:
            await torch_device.call(model.warm_up)
            sizes = model.batch_sizes
            batcher = Batcher(model.forward, max(sizes), len(windows), torch_device, sizes)
            rows = await asyncio.gather(*(batcher.submit(window[None]) for window in windows))
        finally:
            torch_device.close()
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}

    return asyncio.run(serve())


@contextmanager
def _exact_half_precision(device: torch.device) -> Iterator[None]:
    """Do not use oneDNN on a CPU: with AMX, it sums more coarsely than any GPU."""
    if device.type != "cpu":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")  # of the switch
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _allocated(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.synchronize(device)
    # cuBLAS keeps a workspace per stream, 32 MiB each on an H100, which is not a leak.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device)


@torch.inference_mode()
def _windows_per_s(
    network: nn.Module, subject: Subject, device: torch.device, n: int, n_runs: int
) -> float:
    windows = subject.windows(1).repeat(n, *[1] * subject.channels).to(device)

    def run() -> None:
        outputs = network(windows)
        next(iter(outputs.values())).sum().item()  # waits for the device

    run()
    begun_s = time.perf_counter()
    for _ in range(n_runs):
        run()
    return n * n_runs / (time.perf_counter() - begun_s)


def line(found: Found) -> str:
    """Format one line of the table."""
    half = "-" if found.bfloat16 is None else f"{found.bfloat16:.6f}"
    compiled = "-" if found.compiled is None else f"{found.compiled:.6f}"
    same = "yes" if found.is_deterministic else "NO"
    verdict = "FAILED: " + ", ".join(found.failures) if found.failures else "ok"
    return (
        f"{found.name:14} {found.parity:10.6f} {same:>5} {found.invariance:11.6f} {half:>9} "
        f"{compiled:>9} "
        f"{found.left_mib:9.1f} {found.alone_per_s:9.1f} {found.batched_per_s:10.1f}  {verdict}\n"
    )


def failed_line(name: str, error: Exception) -> str:
    """Format the table's line for a subject whose checks could not be made."""
    message = str(error).strip().partition("\n")[0]
    blanks = " ".join(f"{'-':>{width}}" for width in (10, 5, 11, 9, 9, 9, 9, 10))
    return f"{name:14} {blanks}  FAILED: {type(error).__name__}{': ' if message else ''}{message}\n"


HEAD = (
    f"{'model':14} {'CPU parity':>10} {'same':>5} {'batch = one':>11} {'bfloat16':>9} "
    f"{'compiled':>9} {'left, MiB':>9} {'1 by 1 /s':>9} {'batched /s':>10}  verdict\n"
)


def main(names: list[str], options: Options) -> int:
    """Check all subjects, or those named; return the exit status."""
    device = device_for(options)
    if device is None:
        sys.stdout.write(f"gpu-check: skipped, {NO_DEVICE}\n")
        return 0
    name = "dry run on the CPU" if options.is_dry else torch.cuda.get_device_name()
    sys.stdout.write(f"{name}, torch {torch.__version__}\n")
    known = subjects(is_small=options.is_dry)
    chosen = [subject for subject in known if not names or subject.name in names]
    with kernels(options):
        return 1 if check_all(chosen, device, DRY if options.is_dry else FULL) else 0


def check_all(chosen: Iterable[Subject], device: torch.device, effort: Effort = FULL) -> int:
    """Print the table, each line as soon as it is known; return how many subjects failed."""
    sys.stdout.write(HEAD)
    n_failed = 0
    for subject in chosen:
        try:
            found = check(subject, device, effort)
        except Exception as error:  # noqa: BLE001  whatever it is, the others are to be checked too
            n_failed += 1
            told = failed_line(subject.name, error)
        else:
            n_failed += bool(found.failures)
            told = line(found)
        sys.stdout.write(told)
        sys.stdout.flush()
    return n_failed


if __name__ == "__main__":
    names = sys.argv[1:]
    sys.exit(main([name for name in names if name != "--dry"], Options(is_dry="--dry" in names)))
