"""Checkpoints exchanged under load, with a store in this process and networks that are counted."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import CardError, ModelCard, choose_cards
from serve_app.checkpoints.choice import Choices, Proposal, ReplicaReport
from serve_app.checkpoints.exchange import Exchange, ids_by_role
from serve_app.checkpoints.follower import Follower
from serve_app.checkpoints.swap import ReplicaProgress, SwapError, Swapped, swap

pytestmark = pytest.mark.usefixtures("quick_freezing")

OLD, NEW = "afa-embed-1", "clap"


class Memory:
    """`ModelChoicesPort` without Redis."""

    def __init__(self) -> None:
        self.chosen: dict[str, str] = {}
        self.proposal: Proposal | None = None
        self.by_replica: dict[str, ReplicaReport] = {}

    async def read(self) -> Choices:
        return Choices(dict(self.chosen), self.proposal)

    async def report(self, report: ReplicaReport) -> None:
        self.by_replica[report.replica] = report

    async def reports(self) -> Sequence[ReplicaReport]:
        return list(self.by_replica.values())

    async def propose(self, proposal: Proposal, ttl_s: float) -> bool:
        if self.proposal is not None:
            return False
        self.proposal = proposal
        return True

    async def keep(self, proposal: Proposal, ttl_s: float) -> bool:
        return self.proposal == proposal

    async def withdraw(self, proposal: Proposal) -> None:
        if self.proposal == proposal:
            self.proposal = None

    async def choose(self, role: str, model_id: str) -> None:
        self.chosen.pop(role, None)
        if model_id:
            self.chosen[role] = model_id


class Network:
    """Counts its requests; it can be retired once none is left."""

    def __init__(self, ids: str) -> None:
        self.ids = ids
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.is_retired = False
        self.itself = [self]  # a cycle, as real networks have

    async def ask(self, takes_s: float) -> str:
        assert not self.is_retired
        self.running += 1
        self.idle.clear()
        await asyncio.sleep(takes_s)
        assert not self.is_retired
        self.running -= 1
        if not self.running:
            self.idle.set()
        return self.ids

    async def retire(self) -> None:
        await self.idle.wait()
        self.is_retired = True


class Replica:
    """A follower that records what it loads."""

    def __init__(
        self, store: Memory, cards: Mapping[str, ModelCard], name: str, load_s: float = 0.05
    ) -> None:
        self.load_s = load_s
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.fault: Exception | None = None
        self.broken_ids = ""
        self.loaded: list[weakref.ref[Network]] = []
        self.released = 0
        self.exchange: Exchange[Network] = Exchange(self.load, Network.retire, self.count)
        self.follower = Follower(
            store,
            lambda chosen: choose_cards(cards, "any", chosen),
            ("embedding",),
            self.exchange,
            name,
            "Embedding",
        )

    async def load(self, cards: Mapping[str, Sequence[ModelCard]]) -> Network:
        await asyncio.sleep(self.load_s)
        await self.may_load.wait()
        if self.fault is not None or ids_by_role(cards)["embedding"] == self.broken_ids:
            raise self.fault or CheckpointError(self.broken_ids, "hf://m-a-p", "not here")
        network = Network(ids_by_role(cards)["embedding"])
        self.loaded.append(weakref.ref(network))
        return network

    def count(self) -> None:
        self.released += 1

    @property
    def alive(self) -> list[str]:
        gc.collect()
        return [network.ids for ref in self.loaded if (network := ref()) is not None]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.checkpoints.follower.POLL_S", 0.02)
    monkeypatch.setattr("serve_app.checkpoints.follower.SWAP_POLL_S", 0.01)
    monkeypatch.setattr("serve_app.checkpoints.swap.POLL_S", 0.01)
    monkeypatch.setattr("serve_app.checkpoints.swap.NOTICE_S", 0.02)


@pytest.fixture
def store() -> Memory:
    return Memory()


@pytest.fixture
async def replicas(
    store: Memory, cards: dict[str, ModelCard]
) -> AsyncIterator[tuple[Replica, Replica]]:
    pair = Replica(store, cards, "one"), Replica(store, cards, "two", load_s=0.2)
    for replica in pair:
        await replica.follower.start()
    await until(lambda: len(store.by_replica) == 2)
    yield pair
    for replica in pair:
        await replica.follower.stop()


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  the state has no event
            await asyncio.sleep(0.005)


async def test_a_swap_under_load_fails_no_request_and_all_switch(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    answers: list[str] = []
    is_over = asyncio.Event()

    async def caller(replica: Replica, takes_s: float) -> None:
        while not is_over.is_set():
            answers.append(await replica.exchange.current.ask(takes_s))

    callers = [
        asyncio.create_task(caller(replica, 0.003 * n)) for replica in replicas for n in range(1, 9)
    ]
    await until(lambda: len(answers) >= 20)
    steps: list[set[str]] = []
    replicas[1].may_load.clear()

    def show(shown: Sequence[ReplicaProgress]) -> None:
        steps.append({step.state for step in shown})
        if steps[-1] == {"loading", "ready"}:
            replicas[1].may_load.set()

    done = await swap(store, "embedding", NEW, show)
    assert done == Swapped(2, OLD, NEW)
    assert [replica.exchange.serving for replica in replicas] == [{"embedding": NEW}] * 2
    await asyncio.sleep(0.1)  # work that had begun ends as it began
    n_before = len(answers)
    await asyncio.sleep(0.1)
    is_over.set()
    await asyncio.gather(*callers)
    assert set(answers[:20]) == {OLD}
    assert set(answers[n_before:]) == {NEW}
    assert {"loading"} in steps
    assert {"loading", "ready"} in steps  # nobody switches before the slowest is ready
    assert steps[-1] == {"switched"}
    del callers
    await until(lambda: all(replica.alive == [NEW] for replica in replicas))
    assert all(replica.released >= 1 for replica in replicas)
    assert store.proposal is None


async def test_what_was_loaded_is_frozen(
    store: Memory, cards: dict[str, ModelCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[list[str]] = []
    replica = Replica(store, cards, "a", load_s=0)
    monkeypatch.setattr(
        "serve_app.checkpoints.exchange.freeze_loaded", lambda: frozen.append(replica.alive)
    )
    await replica.exchange.prepare({"embedding": [cards[OLD]]})
    assert frozen == [[OLD]]


async def test_nothing_is_prepared_for_another_role(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    await store.propose(Proposal("tags", OLD, "t"), 1)
    await asyncio.sleep(0.2)
    assert [len(replica.loaded) for replica in replicas] == [1, 1]
    assert not any(report.ready_for for report in store.by_replica.values())


async def test_one_replica_that_cannot_load_stops_the_swap_for_all(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    replicas[1].fault = CheckpointError(NEW, "hf://laion", "the tensors are not the card's")
    with pytest.raises(SwapError, match=r"Embedding two cannot.*not the card's.*Nothing was"):
        await swap(store, "embedding", NEW)
    assert store.chosen == {}
    await until(lambda: replicas[0].alive == [OLD])  # what it had prepared is freed
    assert [await replica.exchange.current.ask(0) for replica in replicas] == [OLD, OLD]


async def test_a_driver_that_dies_leaves_things_as_they_were(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    driver = asyncio.create_task(swap(store, "embedding", NEW))
    await until(lambda: store.by_replica["one"].ready_for != "")
    assert replicas[0].alive == [OLD, NEW]
    driver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driver
    await until(lambda: replicas[0].alive == [OLD])
    assert store.chosen == {}


async def test_two_swaps_at_once_are_refused(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    first = asyncio.create_task(swap(store, "embedding", NEW))
    await until(lambda: store.proposal is not None)
    with pytest.raises(SwapError, match=rf"another swap is under way .embedding to {NEW}"):
        await swap(store, "embedding", "mert-95m")
    assert (await first).after == NEW


async def test_a_replica_that_is_too_slow_is_named(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    replicas[0].load_s = 0
    replicas[1].may_load.clear()
    with pytest.raises(SwapError, match="not ready after 1 s: two; nothing"):
        await swap(store, "embedding", NEW, prepare_limit_s=1.0)
    assert store.chosen == {}


async def test_a_proposal_that_has_lapsed_changes_nothing(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    replicas[0].may_load.clear()
    driver = asyncio.create_task(swap(store, "embedding", NEW))
    await until(lambda: store.by_replica["two"].ready_for != "")
    store.proposal = None
    with pytest.raises(SwapError, match="lapsed; nothing was changed"):
        await driver
    replicas[0].may_load.set()
    assert store.chosen == {}
    await until(lambda: replicas[1].alive == [OLD])


async def test_a_replica_that_does_not_switch_is_named(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    choose = store.choose

    async def choose_without_two(role: str, model_id: str) -> None:
        await replicas[1].follower.stop()
        await choose(role, model_id)

    store.choose = choose_without_two  # type: ignore[method-assign]
    with pytest.raises(SwapError, match=f"is {NEW} from now on, but two did not say so in 1 s"):
        await swap(store, "embedding", NEW, switch_limit_s=1.0)
    assert (store.chosen, store.proposal) == ({"embedding": NEW}, None)


@pytest.mark.parametrize("n_lost", [1, 2])
async def test_a_checkpoint_that_no_replica_outlives_is_not_chosen(
    store: Memory, replicas: tuple[Replica, Replica], n_lost: int
) -> None:
    for replica in replicas:
        replica.may_load.clear()
    driver = asyncio.create_task(swap(store, "embedding", NEW))
    await until(lambda: all(report.knows for report in store.by_replica.values()))
    for name, replica in list(zip(("one", "two"), replicas, strict=True))[:n_lost]:
        await replica.follower.stop()
        del store.by_replica[name]
    replicas[1].may_load.set()
    if n_lost == 1:
        assert await driver == Swapped(1, OLD, NEW, silent=("Embedding one",))
    else:
        with pytest.raises(SwapError, match="ended while it loaded: one, two; nothing was"):
            await driver
        assert (store.chosen, store.proposal) == ({}, None)


async def test_replicas_of_different_files_are_told_apart(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    await swap(store, "embedding", NEW)
    other = replace(store.by_replica["one"], replica="three", ready_ids="mert-95m")

    async def report(report: ReplicaReport) -> None:
        store.by_replica[report.replica] = report
        if report.ready_for:
            store.by_replica["three"] = replace(other, ready_for=report.ready_for)

    store.report = report  # type: ignore[method-assign]
    store.by_replica["three"] = other
    with pytest.raises(SwapError, match="different checkpoints"):
        await swap(store, "embedding", "")
    assert store.chosen == {"embedding": NEW}


async def test_the_choice_is_loaded_at_the_start_and_default_takes_it_back(
    store: Memory, cards: dict[str, ModelCard]
) -> None:
    assert await swap(store, "embedding", NEW) == Swapped(0)
    replica = Replica(store, cards, "late")
    await replica.follower.start()
    assert replica.exchange.serving == {"embedding": NEW}
    await until(lambda: "late" in store.by_replica)
    assert await swap(store, "embedding", "") == Swapped(1, NEW, OLD)
    await replica.follower.stop()


async def test_a_choice_made_without_a_proposal_is_followed_after_loading(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    await store.choose("embedding", NEW)
    await asyncio.sleep(0.03)
    assert await replicas[1].exchange.current.ask(0) == OLD  # until the new one is loaded
    await until(lambda: all(r.exchange.serving == {"embedding": NEW} for r in replicas))


async def test_a_choice_that_cannot_be_followed_keeps_the_old_and_says_so(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    await store.choose("embedding", "no-such-model")
    await until(lambda: "no-such-model" in store.by_replica["one"].error)
    assert await replicas[0].exchange.current.ask(0) == OLD


async def test_a_choice_that_cannot_be_loaded_fails_the_start(
    store: Memory, cards: dict[str, ModelCard]
) -> None:
    back = "It was swapped in; back with `afa models swap embedding default`"
    replica = Replica(store, cards, "one")
    replica.fault = CheckpointError(OLD, "afa", "not here")
    with pytest.raises(CheckpointError):
        await replica.follower.start()
    await store.choose("embedding", NEW)
    replica.fault = CheckpointError(NEW, "hf://laion", "not here")
    with pytest.raises(CardError, match=f"not here.*{back}$"):
        await replica.follower.start()
    await store.choose("embedding", "no-such-model")
    with pytest.raises(CardError, match=f"'no-such-model'; see `afa models list`. {back}$"):
        await replica.follower.start()


async def test_a_swap_is_the_way_out_of_a_choice_that_cannot_be_followed(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    for replica in replicas:
        replica.broken_ids = "mert-95m"
    for broken in ("no-such-model", "mert-95m"):
        await store.choose("embedding", broken)
        await until(lambda: all(report.error for report in store.by_replica.values()))
        assert (await swap(store, "embedding", NEW)).after == NEW
        assert (await swap(store, "embedding", "")).after == OLD


async def test_a_swap_that_failed_may_be_tried_again_at_once(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    replicas[0].fault = CheckpointError(NEW, "hf://laion", "not in the folder")
    with pytest.raises(SwapError, match="not in the folder"):
        await swap(store, "embedding", NEW)
    replicas[0].fault = None
    await until(lambda: not store.by_replica["one"].error)
    assert (await swap(store, "embedding", NEW)).after == NEW


async def test_what_a_failed_load_took_is_given_back(
    store: Memory, replicas: tuple[Replica, Replica]
) -> None:
    await until(lambda: not store.by_replica["one"].error)
    released = replicas[0].released
    replicas[0].fault = CheckpointError(NEW, "hf://laion", "out of memory")
    with pytest.raises(SwapError):
        await swap(store, "embedding", NEW)
    await until(lambda: replicas[0].released > released)


async def test_a_replica_that_starts_during_a_swap_begins_with_its_outcome(
    store: Memory, cards: dict[str, ModelCard]
) -> None:
    replica = Replica(store, cards, "late", load_s=0.1)
    starting = asyncio.create_task(replica.follower.start())
    await asyncio.sleep(0.05)
    await store.choose("embedding", NEW)
    await starting
    assert replica.exchange.serving == {"embedding": NEW}
    await replica.follower.stop()


async def test_a_replica_follows_on_after_an_error_that_nobody_foresaw(
    store: Memory, replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = store.report

    async def fail_once(told: ReplicaReport) -> None:
        monkeypatch.setattr(store, "report", report)
        raise ValueError("not a report")

    monkeypatch.setattr(store, "report", fail_once)
    await until(lambda: store.report == report)
    await store.choose("embedding", NEW)
    await until(lambda: all(r.exchange.serving == {"embedding": NEW} for r in replicas))


async def test_whoever_reads_now_and_then_knows_of_a_swap_before_it_is_made(
    store: Memory, cards: dict[str, ModelCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.checkpoints.swap.NOTICE_S", 0.3)
    replica = Replica(store, cards, "one", load_s=0)
    await replica.follower.start()
    seen: list[tuple[bool, bool]] = []

    async def watch() -> None:
        while True:
            choices = await store.read()
            seen.append((choices.proposal is not None, "embedding" in choices.chosen))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    await until(lambda: "one" in store.by_replica and seen)
    await swap(store, "embedding", NEW)
    await until(lambda: seen[-1] == (False, True))
    watching.cancel()
    assert (True, False) in seen
    await replica.follower.stop()
