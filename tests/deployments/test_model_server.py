"""What a model deployment answers, without Ray: a toy step whose rows tell who made them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.audio import Waveform
from pipelines.batcher import DeviceFaultError
from pipelines.steps import Outputs, Prepared
from pipelines.windows import WindowSpec
from serve_app.deployments import model_server
from serve_app.deployments.model_server import ModelServer
from serve_app.deployments.options import ModelOptions
from serve_app.services.model_exchange import Cards, Exchange, ids_by_role

BREAK = 7.0
"""A sample under which the toy's device breaks."""


class ToyModel:
    model_id = "toy"
    spec = WindowSpec(44_100, 100, 100)

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        if (windows == BREAK).any():
            raise RuntimeError("CUDA error: device-side assert triggered")
        return {"sum": windows.sum(dim=1)}


class ToyStep:
    """Answers with the ids of its checkpoints."""

    def __init__(self, cards: Cards) -> None:
        self.models: Sequence[ToyModel] = (ToyModel(),)
        self._ids = ids_by_role(cards)

    def prepare(self, waveform: Waveform) -> Prepared:
        return Prepared({"toy": torch.from_numpy(waveform.samples[:, :100])})

    def finish(self, prepared: Prepared, outputs: Outputs) -> dict[str, str]:
        return self._ids


class ToyServer(ModelServer[dict[str, str]]):
    roles = ("tags", "embedding")

    def build(self, cards: Cards) -> ToyStep:
        return ToyStep(cards)


@pytest.fixture
def follower() -> SimpleNamespace:
    return SimpleNamespace(chosen={})


@pytest.fixture
async def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follower: SimpleNamespace
) -> ToyServer:
    options = ModelOptions(model_dir=tmp_path, device="cpu", named_mib=1)

    async def follow(
        _options: Any, _stores: Any, roles: Sequence[str], exchange: Exchange[Any]
    ) -> SimpleNamespace:
        cards = options.cards()
        await exchange.prepare({role: cards[role] for role in roles})
        exchange.switch()
        return follower

    monkeypatch.setattr(model_server, "follow", follow)
    monkeypatch.setattr(model_server, "assigned_cpus", lambda: 1)
    made = ToyServer.__new__(ToyServer)
    await made.__init__(options, None)  # type: ignore[misc]  # as Serve does
    return made


async def ask(server: ToyServer, *model_id: str, sample: float = 1.0) -> Any:
    pcm: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pcm.set_result(np.full((1, 200), sample, np.float32))
    return await server.analyse([pcm], 44_100, *model_id)  # type: ignore[list-item]


async def test_a_named_embedding_goes_with_the_tags_that_are_chosen_now(
    server: ToyServer, follower: SimpleNamespace
) -> None:
    first = await ask(server, "clap")
    assert first.models == first.result
    assert first.models["embedding"] == "clap"
    follower.chosen = {"tags": "ast-audioset"}
    second = await ask(server, "clap")
    assert second.models == second.result == {"tags": "ast-audioset", "embedding": "clap"}
    assert (await ask(server)).models["embedding"] == "musicnn-msd-768"


async def test_a_device_that_breaks_under_a_named_embedding_shows_in_the_health(
    server: ToyServer,
) -> None:
    await server.check_health()
    with pytest.raises(DeviceFaultError):
        await ask(server, "clap", sample=BREAK)
    with pytest.raises(DeviceFaultError):
        await server.check_health()
