"""What a model deployment answers, without Ray: a toy step whose rows show who made them."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from models.checkpoints.cache import CheckpointError
from pipelines.audio.track import Track
from pipelines.batching.batcher import DeviceFaultError, DeviceGoneError
from pipelines.batching.steps import Outputs, Prepared
from pipelines.batching.windows import WindowSpec
from serve_app.checkpoints.exchange import Cards, Exchange, ids_by_role
from serve_app.checkpoints.shelf import ShelfFullError
from serve_app.composition.options import ModelOptions
from serve_app.deployments import model_server, placement
from serve_app.deployments.autoscaling import BACKLOG, BUSY
from serve_app.deployments.model_server import ModelServer
from tests.recorded import Recorded

pytestmark = pytest.mark.usefixtures("quick_freezing")

BREAK, SLOW, HELD = 7.0, 8.0, 9.0
"""Samples for which the toy's device breaks, takes `SLOW_S` per window, or waits to be released."""
SLOW_S = 0.05


class ToyModel:
    model_id = "toy"
    spec = WindowSpec(44_100, 100, 100)
    may_go_on = threading.Event()

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        if (windows == BREAK).any():
            raise RuntimeError("CUDA error: device-side assert triggered")
        if (windows == SLOW).any():
            time.sleep(SLOW_S * len(windows))
        if (windows == HELD).any():
            assert self.may_go_on.wait(60)
        return {"sum": windows.sum(dim=1)}


class ToyStep:
    """A step that answers with the ids of its checkpoints."""

    is_mono = True

    def __init__(self, cards: Cards) -> None:
        self.models: Sequence[ToyModel] = (ToyModel(),)
        self._ids = ids_by_role(cards)

    def prepare(self, track: Track) -> Prepared:
        return Prepared({"toy": track.samples[:, :100]})

    def finish(self, prepared: Prepared, outputs: Outputs) -> dict[str, str]:
        return self._ids


class ToyServer(ModelServer[dict[str, str]]):
    roles = ("tags", "embedding")
    unloadable: ClassVar[dict[str, Exception]] = {}

    def build(self, cards: Cards) -> ToyStep:
        if cards["embedding"][0].model_id in self.unloadable:
            raise self.unloadable[cards["embedding"][0].model_id]
        return ToyStep(cards)


@pytest.fixture
def follower() -> SimpleNamespace:
    return SimpleNamespace(chosen={})


@pytest.fixture
async def server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    follower: SimpleNamespace,
    recorded: Recorded,
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
    monkeypatch.setattr(model_server, "tell_operators", lambda: None)
    monkeypatch.setattr(placement, "_assigned", lambda _resource, _otherwise: 1.0)
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
    assert (await ask(server)).models["embedding"] == "afa-embed-1"


async def test_a_device_that_breaks_under_a_named_embedding_shows_in_the_health(
    server: ToyServer,
) -> None:
    await server.check_health()
    with pytest.raises(DeviceFaultError):
        await ask(server, "clap", sample=BREAK)
    with pytest.raises(DeviceFaultError):
        await server.check_health()


async def test_what_is_loaded_shows_with_its_device(server: ToyServer, recorded: Recorded) -> None:
    before = len(recorded.of("afa_device_info", model="toy"))
    await server.check_health()  # Ray forgets values that are not reported again
    assert recorded.of("afa_device_info", model="toy")[before:] == [1]
    assert recorded.of("afa_warm_up_seconds", model="toy")[-1] > 0


async def test_work_of_named_embeddings_counts_for_scaling(server: ToyServer) -> None:
    await ask(server, "clap")
    await server.record_autoscaling_stats()
    await asyncio.gather(*(ask(server, "clap", sample=SLOW) for _ in range(8)))
    assert (await server.record_autoscaling_stats())[BUSY] > 0.05
    asked = [asyncio.create_task(ask(server, "clap", sample=SLOW)) for _ in range(40)]
    longest_s = 0.0
    while not all(task.done() for task in asked):
        longest_s = max(longest_s, (await server.record_autoscaling_stats())[BACKLOG])
        await asyncio.sleep(SLOW_S / 20)
    # Of 40 windows, the last 8 wait for two batches; most of those measured were slow.
    assert longest_s > 8 * SLOW_S / 2
    await asyncio.gather(*asked)
    assert (await server.record_autoscaling_stats())[BACKLOG] == 0


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
    ],
)
async def test_a_device_that_breaks_while_a_named_embedding_loads_is_replaced(
    server: ToyServer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(ToyServer, "unloadable", {"clap": error})
    results = await asyncio.gather(ask(server, "clap"), ask(server, "clap"), return_exceptions=True)
    assert [type(result) for result in results] == [DeviceFaultError, DeviceGoneError]
    with pytest.raises(DeviceGoneError):  # no work is begun on a broken device
        await ask(server)
    with pytest.raises(DeviceFaultError, match="CUDA error"):
        await server.check_health()


async def test_a_named_embedding_that_is_not_here_is_no_fault_of_the_device(
    server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = CheckpointError("clap", "hf://x/y", "it is not here")
    monkeypatch.setattr(ToyServer, "unloadable", {"clap": absent})
    with pytest.raises(CheckpointError):
        await ask(server, "clap")
    await server.check_health()
    assert (await ask(server)).models["embedding"] == "afa-embed-1"


async def test_a_named_embedding_for_which_the_device_has_no_memory_is_refused(
    server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[weakref.ref[torch.nn.Module]] = []
    left: list[bool] = []

    def fill_up(cards: Cards) -> ToyStep:
        half = torch.nn.Linear(8, 8)
        begun.append(weakref.ref(half))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    with monkeypatch.context() as patched:
        patched.setattr(server, "build", fill_up)
        patched.setattr(model_server, "freeze_loaded", gc.collect)
        patched.setattr(server, "_release", lambda: left.append(begun[-1]() is not None))
        with pytest.raises(ShelfFullError, match="clap does not fit"):
            await ask(server, "clap")
    assert left == [False]
    await server.check_health()
    assert (await ask(server, "clap")).models["embedding"] == "clap"


async def test_what_the_batchers_measure_is_published(
    server: ToyServer, recorded: Recorded
) -> None:
    assert not recorded.of("afa_batch_windows")  # warming up does not count as work
    asked = [asyncio.create_task(ask(server, sample=SLOW)) for _ in range(40)]
    while not all(task.done() for task in asked):
        await asyncio.sleep(SLOW_S / 8)
        await server.check_health()
    await asyncio.gather(*asked)
    await server.check_health()
    (measured,) = server._exchange.current.metrics().values()
    found = {name: values for (name, _), values in recorded.values.items()}
    assert len(found) == len(recorded.values)
    n_warm = 2  # both channels of the noise
    assert sum(found["afa_batch_windows"]) == measured.windows - n_warm == 40
    assert len(found["afa_batch_windows"]) == len(found["afa_batch_seconds"]) < 40
    assert len(found["afa_batch_queue_seconds"]) == 40
    assert 40 * SLOW_S <= sum(found["afa_batch_device_seconds"]) <= measured.device_s
    assert max(found["afa_batch_queued_windows"]) > 0
    assert found["afa_batch_queued_windows"][-1] == 0


async def test_failures_and_what_was_dropped_are_published(
    server: ToyServer, recorded: Recorded
) -> None:
    (step,) = server._steps
    ToyModel.may_go_on.clear()
    ahead = [asyncio.create_task(ask(server, sample=HELD)) for _ in range(40)]
    async with asyncio.timeout(60):  # until every track is queued, or on the device
        while step._running < len(ahead) or step._preparing.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    for task in ahead[32:]:
        task.cancel()
    ToyModel.may_go_on.set()
    await asyncio.wait(ahead)
    with pytest.raises(DeviceFaultError):
        await ask(server, sample=BREAK)
    assert sum(recorded.of("afa_batch_dropped_windows", model="toy")) == len(ahead[32:])
    assert sum(recorded.of("afa_batch_failed_tracks", model="toy")) == 1


async def test_room_for_a_named_embedding_is_made_by_the_size_of_its_file(
    server: ToyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ToyModel, "network", torch.nn.Linear(400, 400), raising=False
    )  # 0.6 of 1 MiB
    beside: list[int] = []
    build = server.build

    def counting(cards: Cards) -> ToyStep:
        beside.append(len(server._shelf.values))
        return build(cards)

    monkeypatch.setattr(server, "build", counting)
    for model_id in ("clap", "mert-95m"):
        folder = tmp_path / model_id
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(bytes(640_000))
        await ask(server, model_id)
    await ask(server, "maest-30s")  # its size is not known
    assert beside == [0, 0, 1]
    assert len(server._shelf.values) == 1
