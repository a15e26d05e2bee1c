"""Forwards recorded as CUDA graphs: with a simulated graph, and on a GPU if there is one."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.checkpoints.cards import ModelCard
from pipelines.analysis.networks.checkpoint_model import CheckpointModel, Execution
from pipelines.batching.cuda_graph import WARM_UP_RUNS, RecordedForward
from pipelines.batching.device import TorchDevice


class SimulatedGraph:
    """Runs the recorded forward again, with the recording's memory as input and output."""

    recorder: "Counted"

    def replay(self) -> None:
        self.recorder.outputs["sum"].copy_(self.recorder.inputs.sum(dim=1))


class Counted:
    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, windows: Tensor) -> dict[str, Tensor]:
        self.runs += 1
        self.inputs, self.outputs = windows, {"sum": windows.sum(dim=1)}
        return self.outputs


def test_a_replay_reads_new_windows_and_its_outputs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []

    @contextmanager
    def record(graph: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        modes.append(capture_error_mode)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimulatedGraph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph", record)
    forward = Counted()
    SimulatedGraph.recorder = forward
    recorded = RecordedForward(forward, torch.zeros(2, 3))
    assert (forward.runs, modes) == (WARM_UP_RUNS + 1, ["thread_local"])
    first = recorded(torch.ones(2, 3))["sum"]
    second = recorded(torch.full((2, 3), 5.0))["sum"]
    assert (first.tolist(), second.tolist()) == ([3, 3], [15, 15])
    assert forward.runs == WARM_UP_RUNS + 1


class Trunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 64))
        self.precision = torch.float32

    def compile_trunk(self, **options: Any) -> None:
        self.trunk.compile(**options)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        return {"rows": self.trunk(windows[:, :512])}


def test_what_stays_in_float32_convolves_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: None)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    TorchDevice("cuda").close()
    assert torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
async def test_two_recorded_networks_serve_at_once_and_give_their_memory_back(
    cards: dict[str, ModelCard],
) -> None:
    cuda = torch.device("cuda")
    execution = Execution(torch.float32, (1, 8), cuda_graphs=True)

    async def serve(seed: int) -> None:
        torch.manual_seed(seed)
        network = Trunk()
        model = CheckpointModel(cards["musicnn-mtt"], network, cuda, execution=execution)
        device = TorchDevice(cuda)
        await device.call(model.warm_up)
        for n in (1, 3, 8) * 20:
            windows = torch.randn(n, model.spec.length)
            outputs, _ = await device.run(model.forward, [lambda windows=windows: windows], 0)
            with torch.inference_mode():
                wanted = network.trunk[2](
                    torch.nn.functional.gelu(network.trunk[0](windows[:, :512].cuda()))
                )
            torch.testing.assert_close(outputs["rows"], wanted.cpu(), atol=1e-4, rtol=1e-4)
        device.close()

    async def left() -> int:
        gc.collect()
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    await serve(0)
    before = await left()
    await asyncio.gather(serve(1), serve(2))  # shapes that are compiled already, in other threads
    assert await left() <= before + (4 << 20)
