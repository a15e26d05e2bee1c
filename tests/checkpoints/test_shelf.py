"""Named checkpoints within a memory budget; the least recently used one goes first."""

import asyncio
import gc
import weakref

import pytest

from serve_app.checkpoints.freeze import freeze_loaded
from serve_app.checkpoints.shelf import Shelf, ShelfFullError

pytestmark = pytest.mark.usefixtures("quick_freezing")

FREEZE_LOADED = "serve_app.checkpoints.shelf.freeze_loaded"
SIZES = {"a": 40, "b": 40, "c": 40, "huge": 200}


class Counted:
    def __init__(self) -> None:
        self.loads: list[str] = []
        self.gone: list[str] = []
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def load(self, model_id: str) -> tuple[str, int]:
        await asyncio.sleep(0.001)
        self.loads.append(model_id)
        return model_id, SIZES[model_id]

    async def retire(self, value: str) -> None:
        await self.may_go.wait()
        self.gone.append(value)


@pytest.fixture
async def counted() -> Counted:
    return Counted()


async def test_two_models_answer_side_by_side_and_load_once(counted: Counted) -> None:
    shelf = Shelf(counted.load, counted.retire, 100)
    names = ["a", "b"] * 20
    assert await asyncio.gather(*(shelf.get(name) for name in names)) == names
    assert sorted(counted.loads) == ["a", "b"]
    assert counted.gone == []


async def test_the_least_recently_used_goes_when_its_requests_are_done(counted: Counted) -> None:
    shelf = Shelf(counted.load, counted.retire, 100)
    for name in ("a", "b", "a"):
        await shelf.get(name)
    counted.may_go.clear()
    assert await shelf.get("c") == "c"
    assert shelf.values == ["a", "c"]
    assert counted.gone == []  # somebody still uses it
    counted.may_go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert counted.gone == ["b"]
    await shelf.get("b")
    assert counted.loads == ["a", "b", "c", "b"]


async def test_what_is_too_large_is_refused_and_spoils_nothing(counted: Counted) -> None:
    shelf = Shelf(counted.load, counted.retire, 100)
    await shelf.get("a")
    with pytest.raises(ShelfFullError, match="huge needs 200 bytes"):
        await shelf.get("huge")
    with pytest.raises(KeyError):
        await shelf.get("unknown")
    assert shelf.values == ["a"]
    await asyncio.sleep(0.01)
    assert counted.gone == ["huge"]


async def started(task: "asyncio.Task[str]") -> bool:
    """Give a task some time; return whether it is done."""
    await asyncio.sleep(0.05)
    return task.done()


async def test_room_is_made_before_loading_where_the_size_is_known(counted: Counted) -> None:
    there: list[set[str]] = []

    async def load(name: str) -> tuple[str, int]:
        there.append(set(counted.loads) - set(counted.gone))
        return await counted.load(name)

    shelf = Shelf(load, counted.retire, 100, expected_bytes=SIZES.__getitem__)
    await shelf.get("a")
    await shelf.get("b")
    counted.may_go.clear()
    third = asyncio.create_task(shelf.get("c"))
    assert not await started(third)
    assert counted.loads == ["a", "b"]  # the one that has to go is still in use
    assert await shelf.get("b") == "b"  # nobody waits for one that stays
    counted.may_go.set()
    assert await third == "c"
    assert there == [set(), {"a"}, {"b"}]
    assert shelf.values == ["b", "c"]


async def test_a_size_is_known_once_it_was_loaded(counted: Counted) -> None:
    shelf = Shelf(counted.load, counted.retire, 100)
    for name in ("a", "b", "c"):
        await shelf.get(name)
    counted.may_go.clear()
    again = asyncio.create_task(shelf.get("a"))
    assert not await started(again)
    assert counted.loads == ["a", "b", "c"]
    counted.may_go.set()
    assert await again == "a"
    with pytest.raises(ShelfFullError):
        await shelf.get("huge")
    with pytest.raises(ShelfFullError):
        await shelf.get("huge")
    assert counted.loads.count("huge") == 1
    assert len(shelf.values) == 2


async def test_an_expectation_above_the_budget_is_not_believed(counted: Counted) -> None:
    shelf = Shelf(counted.load, counted.retire, 100, expected_bytes=lambda _: 101)
    assert await shelf.get("a") == "a"
    assert await shelf.get("b") == "b"
    assert shelf.values == ["a", "b"]


class Cyclic:
    """Refers to itself, as networks do."""

    def __init__(self) -> None:
        self.itself = self

    async def retire(self) -> None:
        await asyncio.sleep(0)


async def test_what_was_loaded_is_frozen(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(FREEZE_LOADED, lambda: frozen.append(len(counted.loads)))
    shelf = Shelf(counted.load, counted.retire, 100)
    for name in ("a", "b", "a"):
        await shelf.get(name)
    assert frozen == [1, 2]


async def test_memory_of_what_goes_is_given_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FREEZE_LOADED, freeze_loaded)
    alive: list[weakref.ref[Cyclic]] = []
    released: list[int] = []

    async def load(name: str) -> tuple[Cyclic, int]:
        made = Cyclic()
        alive.append(weakref.ref(made))
        return made, SIZES[name]

    def release() -> None:
        released.append(sum(made() is not None for made in alive))

    gc.disable()
    try:
        shelf = Shelf(load, Cyclic.retire, 40, release)
        await shelf.get("a")
        await shelf.get("b")
        async with asyncio.timeout(30):
            while not released:  # noqa: ASYNC110  the thread has no event
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
        gc.unfreeze()
    assert released == [1]
