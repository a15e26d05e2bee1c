"""A network as a deployment serves it: its loader, its execution and its batcher.

The weights are random, of the published size, in a checkpoint written for the purpose; everything
else is what `serve_app.deployments.models.Embedding` runs with `configs/serve.gpu.yaml`. A dry run
uses networks of a few kilobytes on the CPU.
"""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from afa.cards import known_cards
from benchmarks.gpu.agreement import sizes_of
from benchmarks.gpu.subjects import Subject, networks
from benchmarks.report import Options
from configs.tables import load_table
from models.checkpoints.cache import pull
from models.checkpoints.cards import CardFile, ModelCard
from models.checkpoints.sources import file_sha256
from pipelines.analysis import embedding
from pipelines.analysis.networks.checkpoint_model import CheckpointModel, Execution, load
from pipelines.analysis.records import EmbeddingResult
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import Prepared
from serve_app.composition.execution import gpu_execution
from serve_app.composition.model_args import ModelArgs

PROFILE = "serve.gpu"
SUBJECTS = {"mert-95m": "mert-95m", "ast-audioset": "ast"}
"""Embedding models to measure → their names among the subjects."""
CALLERS = 4
"""Tracks waiting or running at a time, a full batch each."""
DRY_SIZES = (1, 4)
KERNEL_NAME = 100
"""Characters kept of a kernel's name, as templates make it longer."""


@dataclass(frozen=True, slots=True)
class Served:
    """An embedding model behind its batcher.

    Attributes:
        gflop: GFLOP of the forward of one window.
        batch: Windows in the largest forward.
    """

    subject: Subject
    card: ModelCard
    model_dir: Path
    device: torch.device
    step: BatchedStep[EmbeddingResult]
    gflop: float
    batch: int

    @property
    def window_s(self) -> float:
        """Seconds of audio in a window."""
        return self.subject.n_samples / self.subject.sample_rate

    def windows(self, n: int) -> Tensor:
        """Make ``n`` equal windows."""
        return self.subject.windows(1).repeat(n, 1)

    def alone(self, dtype: torch.dtype) -> CheckpointModel:
        """Load the same network once more, to run eagerly and without a batcher."""
        return load(self.card, self.model_dir, self.device, 0, Execution(dtype))

    async def loop_rate(self, duration_s: float) -> float:
        """Windows per second of a bare loop over the served network, in the serving thread."""
        (model,) = self.step.step.models
        windows = self.windows(self.batch).to(self.device)
        rates: list[float] = []
        await self.step.device.call(
            lambda: rates.append(loop_rate(model.forward, windows, duration_s))
        )
        return rates[0]

    async def kernel_shares(self, n: int = 8) -> dict[str, float]:
        """Share of a full batch's time by kernel (on a CPU, by operator), largest first."""
        (model,) = self.step.step.models
        windows = self.windows(self.batch).to(self.device)
        is_gpu = self.device.type == "cuda"
        took: Counter[str] = Counter()

        def work() -> None:
            activity = ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU
            with profile(activities=[activity]) as seen:
                _wait(model.forward(windows))
            for of_name in seen.key_averages():
                us = of_name.self_device_time_total if is_gpu else of_name.self_cpu_time_total
                took[of_name.key[:KERNEL_NAME]] += us

        await self.step.device.call(work)
        return {name: us / max(1.0, took.total()) for name, us in took.most_common(n)}

    async def served_rate(self, duration_s: float) -> float:
        """Windows per second with four tracks running or waiting, a full batch each."""
        windows = {self.card.model_id: self.windows(self.batch)}
        begun_s = time.perf_counter()
        n_done = 0

        async def caller() -> None:
            nonlocal n_done
            while True:
                await self.step.complete(Prepared(windows))
                n_done += self.batch
                if time.perf_counter() >= begun_s + duration_s:
                    break

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return n_done / (time.perf_counter() - begun_s)


@contextmanager
def served(model_id: str, device: torch.device, options: Options) -> Iterator[Served]:
    """Write a random checkpoint, load it as its deployment does, and free it at the end.

    It is neither compiled nor recorded yet: `BatchedStep.compile` does that.
    """
    subject = next(
        one for one in networks(is_small=options.is_dry) if one.name == SUBJECTS[model_id]
    )
    args = ModelArgs.model_validate(load_table(PROFILE)["applications"][0]["args"]["embedding"])
    execution = gpu_execution(args.execution)
    if options.is_dry:
        execution = replace(execution, batch_sizes=DRY_SIZES)
    with tempfile.TemporaryDirectory(prefix="afa-bench-") as name:
        model_dir = Path(name) / "models"
        card, gflop = write_checkpoint(subject, known_cards(model_dir)[model_id], Path(name))
        step = BatchedStep(
            embedding.build({"embedding": (card,)}, model_dir, device, args.max_windows, execution),
            device,
            args.batch_windows,
            max_batch_bytes=args.batch_mib << 20,
            max_queued_bytes=args.queue_mib << 20,
        )
        try:
            batch = max(execution.batch_sizes, default=args.batch_windows)
            yield Served(subject, card, model_dir, device, step, gflop, batch)
        finally:
            step.close()


def write_checkpoint(subject: Subject, like: ModelCard, folder: Path) -> tuple[ModelCard, float]:
    """Publish a subject's random weights in a folder, and pull them into its ``models``.

    Returns:
        Its card, and the GFLOP of one window.
    """
    source = folder / "source"
    network = subject.build(torch.device("cpu"))
    trunk = network.trunk
    if not isinstance(trunk, PreTrainedModel):
        raise TypeError(f"{subject.name} is no network of transformers")
    trunk.save_pretrained(source)
    names = ("config.json", "model.safetensors")
    with torch.inference_mode():
        outputs = sizes_of(network(subject.windows(1)))
    card = replace(
        like,
        source=f"file://{source}",
        format="safetensors",
        files=tuple(CardFile(name, file_sha256(source / name)) for name in names),
        tensors_sha256="",
        window_length=subject.n_samples,
        window_hop=subject.n_samples,
        outputs=outputs,
    )
    pull(card, folder / "models")
    return card, gflop_per_window(network, subject)


def gflop_per_window(network: torch.nn.Module, subject: Subject) -> float:
    """Count the operations of one window's forward, on tensors with a shape but no values."""
    with (
        torch.inference_mode(),
        FakeTensorMode(allow_non_fake_inputs=True),
        sdpa_kernel(SDPBackend.MATH),  # the counter knows its products on every device
        FlopCounterMode(display=False) as counter,
    ):
        network(torch.zeros(1, subject.n_samples))
    return float(counter.get_total_flops()) / 1e9


@torch.inference_mode()
def loop_rate(
    forward: Callable[[Tensor], Mapping[str, Tensor]],
    windows: Tensor,
    duration_s: float,
    n_ahead: int = 4,
) -> float:
    """Windows per second of a bare loop over one batch on the device.

    The host may run ``n_ahead`` batches ahead of the device.
    """
    _wait(forward(windows))
    n_runs, begun_s = 0, time.perf_counter()
    while time.perf_counter() - begun_s < duration_s:
        for _ in range(n_ahead):
            outputs = forward(windows)
        _wait(outputs)
        n_runs += n_ahead
    return n_runs * len(windows) / (time.perf_counter() - begun_s)


def _wait(outputs: Mapping[str, Tensor]) -> None:
    next(iter(outputs.values())).flatten()[0].item()
