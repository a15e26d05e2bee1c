"""A full service says so before it takes a request in."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from pipelines.analysis.records import QuickFeatures
from serve_app.domain.errors import ConcurrencyError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import LOCAL
from serve_app.ledger.jobs.types import Source
from serve_app.ledger.journal import Journal
from serve_app.providers.web.audio_url import TOTAL_S
from serve_app.services.audio.audio import AudioBody, one_chunk
from serve_app.services.bpm import BpmAnswer, BpmService
from serve_app.services.charging import Charging
from serve_app.services.embedding import EmbedAnswer, Embedded, EmbedService, SentFile
from serve_app.services.gate import FETCHES, LONGEST_WAIT_S, BodyPlaces, Gate, share_of
from tests.api.application import Application

CALLER = Caller("key_x", "owner-free", "owner-free", "free", frozenset({"compute"}), is_test=False)
BOB = replace(CALLER, owner="owner-bob", account="owner-bob")


def test_a_gate_lets_in_as_many_as_it_may_and_again_when_they_have_left() -> None:
    gate = Gate(2, retry_after_s=7)
    with gate.entered("ann"):
        with (
            gate.entered("bob"),
            pytest.raises(ServiceUnavailableError) as refused,
            gate.entered("cid"),
        ):
            pass
        assert refused.value.retry_after_s == 7
        with gate.entered("cid"):
            pass
    with pytest.raises(ValueError, match="ours"), gate.entered("ann"):
        raise ValueError("ours")
    with gate.entered("ann"), gate.entered("bob"):
        pass


@pytest.mark.parametrize(("limit", "of_one"), [(1, 1), (3, 1), (8, 2), (32, 8)])
def test_a_gate_lets_in_a_quarter_of_one_owner_and_tells_it(limit: int, of_one: int) -> None:
    gate = Gate(limit)
    with ExitStack() as inside:
        for _ in range(of_one):
            inside.enter_context(gate.entered("ann"))
        with pytest.raises(ConcurrencyError) as refused:
            gate.check("ann")
        assert refused.value.message.startswith(f"{of_one} of your requests")
        for number in range(limit - of_one):
            inside.enter_context(gate.entered(f"other-{number}"))
        with pytest.raises(ServiceUnavailableError):
            gate.check("bob")
    gate.check("ann")


def test_who_leaves_takes_nobody_else_along() -> None:
    gate = Gate(8)
    with gate.entered("ann"):
        with gate.entered("ann"):
            pass
        with gate.entered("ann"), pytest.raises(ConcurrencyError):
            gate.check("ann")


def test_bodies_have_the_places_of_their_owner_and_of_all() -> None:
    places = BodyPlaces(limit=3)
    with places.taken("ann", 2), places.taken("ann", 2):
        with pytest.raises(ConcurrencyError, match="2 of your uploads"), places.taken("ann", 2):
            pass
        with (
            places.taken("bob", 2),
            pytest.raises(ServiceUnavailableError, match="too many uploads"),
            places.taken("cid", 2),
        ):
            pass
    with places.taken("ann", 1), places.taken("bob", 1), places.taken("cid", 1):
        pass


async def test_an_owner_fetches_few_addresses_at_once_and_the_next_waits() -> None:
    places, leave = BodyPlaces(), asyncio.Event()
    begun: list[str] = []

    async def fetch(owner: str) -> None:
        async with places.fetching(owner, 8):
            begun.append(owner)
            await leave.wait()

    async with asyncio.TaskGroup() as fetches:
        for owner in ["ann"] * (FETCHES + 1) + ["bob"]:
            fetches.create_task(fetch(owner))
        await asyncio.sleep(0.01)
        assert sorted(begun) == ["ann"] * FETCHES + ["bob"]
        leave.set()
    assert begun.count("ann") == FETCHES + 1


def test_the_owner_of_the_machine_may_have_the_whole_gate() -> None:
    gate = Gate(32)
    with ExitStack() as inside:
        for _ in range(32):
            inside.enter_context(gate.entered("ann", LOCAL))
        with pytest.raises(ConcurrencyError, match="32 of your requests"):
            gate.check("ann", LOCAL)
    assert (share_of(32, LOCAL), share_of(32, "scale")) == (32, 8)


def test_who_is_next_in_line_outwaits_the_longest_fetch() -> None:
    assert LONGEST_WAIT_S > TOTAL_S


class Waiting:
    """Answers when it is released."""

    def __init__(self) -> None:
        self.begun, self.release = asyncio.Semaphore(0), asyncio.Event()

    async def analyse(
        self, source: Source, *, max_audio_s: float, max_bytes: int, with_key: bool, **_: object
    ) -> QuickFeatures:
        self.begun.release()
        await self.release.wait()
        return QuickFeatures(120.0, 0.9, -1, -1, "")

    async def embed(
        self, source: Source, *, max_audio_s: float, max_bytes: int, model: str
    ) -> Embedded:
        self.begun.release()
        await self.release.wait()
        return Embedded([1.0], "fake", 4.0)


@pytest.mark.redis
async def test_a_full_tempo_service_reads_no_body_and_holds_nothing(api: Application) -> None:
    stores, backend = api.stores, Waiting()
    service = BpmService(
        backend,
        Charging(stores.ledger),
        stores.prices,
        max_in_flight=1,
    )
    n_read = 0

    async def body() -> AsyncGenerator[bytes, None]:
        nonlocal n_read
        n_read += 1
        yield b"sound"

    tier = stores.tiers["free"]
    audio = AudioBody(stores.objects, body(), tier)
    first = asyncio.create_task(service.detect(CALLER, tier, audio, "a"))
    await backend.begun.acquire()
    with pytest.raises(ServiceUnavailableError):
        await service.detect(BOB, tier, audio, "b")
    assert n_read == 1
    backend.release.set()
    assert (await first).credits_used == 2
    kinds = [entry.kind for entry in await Journal(stores.ledger_store).entries("owner-free")]
    assert kinds.count("reserve") == 1
    assert "void" not in kinds


@pytest.mark.redis
async def test_the_work_of_one_owner_leaves_room_for_anothers(api: Application) -> None:
    stores, backend = api.stores, Waiting()
    service = BpmService(backend, Charging(stores.ledger), stores.prices, max_in_flight=8)
    tier = stores.tiers["free"]

    def detect(caller: Caller, name: str) -> Coroutine[Any, Any, BpmAnswer]:
        audio = AudioBody(stores.objects, one_chunk(b"sound"), tier)
        return service.detect(caller, tier, audio, name)

    tasks = [asyncio.create_task(detect(CALLER, name)) for name in "ab"]
    for _ in tasks:
        await backend.begun.acquire()
    with pytest.raises(ConcurrencyError):
        await detect(CALLER, "c")
    tasks.append(asyncio.create_task(detect(BOB, "d")))
    await backend.begun.acquire()
    backend.release.set()
    assert [answer.credits_used for answer in await asyncio.gather(*tasks)] == [2, 2, 2]
    told = (await api.client().get("/v1/account")).json()["limits"]
    assert (told["bpm_in_flight"], told["embed_in_flight"]) == (8, 8)
    await api.issue("owner-me", LOCAL)
    told = (await api.client("owner-me").get("/v1/account")).json()["limits"]
    assert (told["bpm_in_flight"], told["embed_in_flight"]) == (32, 32)


@pytest.mark.redis
async def test_the_services_let_the_owner_of_the_machine_have_all(api: Application) -> None:
    stores, backend = api.stores, Waiting()
    charging, tier = Charging(stores.ledger), stores.tiers[LOCAL]
    bpm = BpmService(backend, charging, stores.prices, max_in_flight=8)
    embedding = EmbedService(backend, charging, stores.prices, max_in_flight=8)
    me = replace(CALLER, owner="owner-me", account="owner-me", tier=LOCAL)

    def audio() -> AudioBody:
        return AudioBody(stores.objects, one_chunk(b"sound"), tier)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(bpm.detect(me, tier, audio(), f"b{number}"))
            files = [SentFile("a", audio())]
            group.create_task(embedding.embed(me, tier, files, "", f"e{number}"))
        for _ in range(16):
            await backend.begun.acquire()
        backend.release.set()


@pytest.mark.redis
async def test_files_that_come_too_late_for_a_place_stay_nowhere_and_cost_nothing(
    api: Application,
) -> None:
    stores, backend, rest = api.stores, Waiting(), asyncio.Event()
    service = EmbedService(backend, Charging(stores.ledger), stores.prices, max_in_flight=1)
    tier = stores.tiers["pro"]

    async def slow() -> AsyncGenerator[bytes, None]:
        yield b"sound"
        await rest.wait()

    def embed(caller: Caller, *bodies: AsyncIterator[bytes]) -> Coroutine[Any, Any, EmbedAnswer]:
        files = [SentFile("a", AudioBody(stores.objects, body, tier)) for body in bodies]
        return service.embed(caller, tier, files, "", caller.owner)

    late = asyncio.create_task(embed(CALLER, one_chunk(b"sound"), slow()))
    while not await kept(api):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    first = asyncio.create_task(embed(BOB, one_chunk(b"sound")))
    await backend.begun.acquire()
    rest.set()
    with pytest.raises(ServiceUnavailableError):
        await late
    assert len(await kept(api)) == 1
    assert (await stores.ledger.balance("owner-free", "free")).remaining == 500
    backend.release.set()
    assert (await first).credits_used == 5
    assert await kept(api) == []


async def kept(api: Application) -> list[str]:
    """The keys of stored bodies."""
    return [one.key async for one in api.stores.objects.scan("uploads/")]
