from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import ModelCard
from pipelines.analysis import embedding
from pipelines.analysis.networks.checkpoint_model import EAGER, CheckpointModel, Execution
from pipelines.batching.runner import BatchedStep

CPU = torch.device("cpu")


class Recorder(nn.Module):
    """A stand-in with a trunk: returns each window's sum, and records how it was used."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.precision = torch.float32
        self.compiled: dict[str, Any] = {}
        self.batches: list[int] = []

    def compile_trunk(self, **options: Any) -> None:
        self.compiled = options

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        self.batches.append(len(windows))
        return {"tags": windows.sum(dim=1, keepdim=True)}


@pytest.fixture
def card(cards: dict[str, ModelCard]) -> ModelCard:
    return replace(cards["musicnn-mtt"], role="tags", outputs={"tags": 1})


def test_the_card_gives_id_and_windows(card: ModelCard) -> None:
    model = CheckpointModel(card, Recorder(), CPU, max_windows=3)
    assert model.model_id == "musicnn-mtt"
    assert (model.spec.sample_rate, model.spec.length, model.spec.hop) == (16_000, 48_128, 47_872)
    assert model.spec.max_windows == 3
    assert not any(p.requires_grad for p in model.network.parameters())


def test_batches_are_filled_up_to_a_compiled_size(card: ModelCard) -> None:
    network = Recorder()
    execution = Execution(torch.bfloat16, batch_sizes=(2, 4), cuda_graphs=True)
    model = CheckpointModel(card, network, CPU, execution=execution)
    assert network.precision == torch.bfloat16
    assert network.compiled == {"dynamic": False}
    windows = torch.arange(15.0).reshape(5, 3)
    for n in (1, 2, 3, 4, 5):
        got = model.forward(windows[:n])["tags"]
        torch.testing.assert_close(got, windows[:n].sum(dim=1, keepdim=True))
    assert network.batches == [2, 2, 4, 4, 5]


def test_warming_up_runs_every_compiled_size_once(card: ModelCard) -> None:
    network = Recorder()
    CheckpointModel(card, network, CPU, execution=Execution(batch_sizes=(1, 8))).warm_up()
    assert network.batches == [1, 8]
    eager = Recorder()
    CheckpointModel(card, eager, CPU).warm_up()
    assert eager.batches == [1]
    assert eager.compiled == {}


@pytest.mark.parametrize(
    ("outputs", "answer", "told"),
    [
        ({"tags": 1}, lambda rows: {"tags": rows[:, :1] / 0}, "tags: not finite"),
        ({"tags": 1}, lambda rows: {"tags": (-rows[:, :1].abs()).log()}, "tags: not finite"),
        ({"tags": 2}, lambda rows: {"tags": rows[:, :3]}, r"shape \(3,\), the card says 2"),
        ({"tags": 2}, lambda rows: {"embedding": rows[:, :2]}, "the network gives embedding"),
        ({"sum": 1}, lambda rows: {"sum": rows[:, :1]}, "needs an output 'tags'"),
        (
            {"tags": 1, "embedding": 769},
            lambda rows: {"tags": rows[:, :1], "embedding": rows[:, :769]},
            "at most 768 dimensions",
        ),
    ],
)
def test_warming_up_refuses_what_the_card_does_not_say(
    outputs: dict[str, int], answer: Any, told: str, card: ModelCard
) -> None:
    network = nn.Sequential()
    network.forward = answer  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match=told):
        CheckpointModel(replace(card, outputs=outputs), network, CPU).warm_up()


async def test_a_replica_is_not_warmed_with_what_is_not_finite(card: ModelCard) -> None:
    class Broken(Recorder):
        def forward(self, windows: Tensor) -> dict[str, Tensor]:
            return {"embedding": windows[:, :8] * torch.nan}

    card = replace(card, role="embedding", outputs={"embedding": 8})
    step = embedding.EmbeddingStep(
        "own", [embedding.Trunk(CheckpointModel(card, Broken(), CPU), None)]
    )
    replica = BatchedStep(step, CPU, 4)
    try:
        with pytest.raises(CheckpointError, match="embedding: not finite"):
            await replica.warm_up()
        replica.check_health()
    finally:
        replica.close()


class Trunk(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(1, width)

    def forward(self, column: Tensor) -> Tensor:
        total: Tensor = self.inner(column).sum(dim=1, keepdim=True)
        return total


class Transformer(Recorder):
    """Counts the forwards of its trunk that ran compiled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = Trunk(width)
        self.compiled_runs = 0

    def compile_trunk(self, **options: Any) -> None:
        self.trunk.compile(backend=self._count, **options)

    def _count(self, graph: torch.fx.GraphModule, example: list[Tensor]) -> Any:
        def run(*args: Any) -> Any:
            self.compiled_runs += 1
            return graph.forward(*args)

        return run

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        return {"tags": self.trunk(windows[:, :1])}


def test_every_size_is_compiled_whatever_was_swapped_before(card: ModelCard) -> None:
    sizes = (1, 2, 4, 8)

    def serve(width: int) -> int:
        network = Transformer(width)
        model = CheckpointModel(card, network, CPU, execution=Execution(batch_sizes=sizes))
        model.warm_up()
        network.compiled_runs = 0
        with torch.inference_mode():
            for size in sizes:
                model.forward(torch.zeros(size, model.spec.length))
        return network.compiled_runs

    def in_a_thread(width: int) -> int:
        with ThreadPoolExecutor(1) as thread:  # as in the service, where each set has its own
            return thread.submit(serve, width).result()

    torch.compiler.reset()
    assert [in_a_thread(width) for width in (3, 5, 7)] == [len(sizes)] * 3


def test_a_convolutional_network_takes_no_notice_of_the_execution(card: ModelCard) -> None:
    plain = nn.Sequential()
    plain.forward = lambda windows: {"same": windows}  # type: ignore[method-assign]
    model = CheckpointModel(card, plain, CPU, execution=Execution(torch.bfloat16, (8,)))
    assert len(model.forward(torch.ones(3, 5))["same"]) == 3


def test_a_short_track_is_repeated_and_a_long_one_ends_with_its_end(card: ModelCard) -> None:
    model = CheckpointModel(card, Recorder(), CPU)
    ramp = np.arange(20_000, dtype=np.float32)
    (short,) = model.cut(torch.from_numpy(ramp))
    np.testing.assert_array_equal(short[:20_000], ramp)
    np.testing.assert_array_equal(short[20_000:40_000], ramp)
    long = model.cut(torch.arange(100_000.0))
    assert long[:, 0].tolist() == [0, 47_872, 100_000 - 48_128]
    assert long[-1, -1] == 99_999


def test_a_network_runs_no_further_from_float32_than_it_can(card: ModelCard) -> None:
    wanted = Execution(torch.bfloat16, (2, 4), cuda_graphs=True)
    plain = CheckpointModel(card, nn.Linear(2, 2), CPU, execution=wanted)
    assert plain.execution == EAGER
    assert plain.network.weight.dtype == torch.float32
    halvable = nn.Linear(2, 2)
    halvable.precision = torch.float32  # type: ignore[assignment]
    model = CheckpointModel(card, halvable, CPU, execution=wanted)
    assert model.execution == Execution(torch.bfloat16)
    assert model.network.weight.dtype == torch.bfloat16
