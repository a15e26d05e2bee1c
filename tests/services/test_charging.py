"""A hold ends with its operation, once, whatever happens and however often it is repeated."""

import asyncio
from typing import Any

import pytest

from serve_app.domain.credits import Balance, Charge
from serve_app.domain.errors import InsufficientCreditsError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.services.charging import Charging, attempt_id
from serve_app.services.lookup.misses import held
from tests.api.application import Application

pytestmark = pytest.mark.redis
CALLER = Caller("key_x", "owner-free", "owner-free", "free", frozenset({"read"}), is_test=False)


@pytest.fixture
async def charging(api: Application) -> tuple[Charging, Application]:
    return Charging(api.stores.ledger), api


async def test_what_is_held_is_charged_at_the_end(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    async with charges.hold(CALLER, 10, "a") as hold:
        assert await api.remaining("free") == 490
        hold.final_cost = 4
    assert (hold.charged, hold.balance.remaining) == (4, 496)
    assert await api.remaining("free") == 496


@pytest.mark.parametrize(
    "fault", [ValueError(), ServiceUnavailableError("x"), asyncio.CancelledError()]
)
async def test_a_failure_gives_everything_back(
    charging: tuple[Charging, Application], fault: BaseException
) -> None:
    charges, api = charging
    with pytest.raises(type(fault)):
        async with charges.hold(CALLER, 10, "a"):
            raise fault
    assert await api.remaining("free") == 500


@pytest.mark.parametrize("operation", ["reserve", "charge"])
@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("is_miss", [True, False])
async def test_whoever_goes_while_the_ledger_answers_leaves_no_hold(
    charging: tuple[Charging, Application],
    operation: str,
    is_done: bool,
    is_miss: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charges, api = charging
    ask, asked = getattr(api.stores.ledger, operation), asyncio.Event()

    async def unanswered(*what: Any) -> None:
        if is_done:
            await ask(*what)
        asked.set()
        await asyncio.Event().wait()

    async def request() -> None:
        if is_miss:
            async with held(charges, CALLER, [(0, 10)], ["track"]):
                pass
        else:
            async with charges.hold(CALLER, 10, "a"):
                pass

    monkeypatch.setattr(api.stores.ledger, operation, unanswered)
    asking = asyncio.create_task(request())
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    balance = await api.stores.ledger.balance("owner-free")
    is_charged = operation == "charge" and is_done
    assert (balance.held, balance.remaining) == (0, 490 if is_charged else 500)


async def test_whoever_goes_while_the_second_track_is_held_leaves_no_hold(
    charging: tuple[Charging, Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    charges, api = charging
    reserve, is_held = api.stores.ledger.reserve, asyncio.Event()

    async def answered_once(payer: Caller, hold_id: str, cost: int) -> Balance:
        balance = await reserve(payer, hold_id, cost)
        if is_held.is_set():
            await asyncio.Event().wait()
        is_held.set()
        return balance

    async def request() -> None:
        async with held(charges, CALLER, [(0, 10)], ["one track", "another"]):
            pass

    monkeypatch.setattr(api.stores.ledger, "reserve", answered_once)
    asking = asyncio.create_task(request())
    await is_held.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    balance = await api.stores.ledger.balance("owner-free")
    assert (balance.held, balance.remaining) == (0, 500)


async def test_a_repeated_request_is_charged_once(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    for _ in range(3):
        async with charges.hold(CALLER, 10, "a") as hold:
            pass
        assert hold.charged == 10
    assert await api.remaining("free") == 490


async def test_a_request_that_failed_before_is_charged_when_it_succeeds(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    for _ in range(3):
        with pytest.raises(ValueError, match="fault"):
            async with charges.hold(CALLER, 10, "a"):
                raise ValueError("fault")
    async with charges.hold(CALLER, 10, "a"):
        pass
    assert await api.remaining("free") == 490


async def test_what_failed_two_hundred_times_is_charged_when_it_succeeds(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    for number in range(200):
        await api.stores.ledger.reserve(CALLER, attempt_id("req:a", number), 10)
        await api.stores.ledger.void(CALLER.account, attempt_id("req:a", number))
    for _ in range(2):
        async with charges.hold(CALLER, 10, "a") as hold:
            pass
        assert hold.hold_id == "req:a:200"
    assert await api.remaining("free") == 490


async def test_too_little_is_refused_before_anything_is_done(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    with pytest.raises(InsufficientCreditsError, match="needs 501 credits and 500 remain"):
        async with charges.hold(CALLER, 501, "a"):
            raise AssertionError("must not run")
    assert await api.remaining("free") == 500
    async with charges.hold(CALLER, 500, "b"):
        pass
    with pytest.raises(InsufficientCreditsError, match="needs 1 credit and 0 remain"):
        async with charges.hold(CALLER, 1, "c"):
            raise AssertionError("must not run")


@pytest.mark.parametrize("is_done", [True, False])
async def test_whoever_is_charged_gets_the_answer(
    charging: tuple[Charging, Application], is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    charges, api = charging
    charge, n_calls = api.stores.ledger.charge, 0

    async def unanswered(account: str, hold_id: str, final_cost: int) -> Charge:
        nonlocal n_calls
        n_calls += 1
        if n_calls < 3:
            if is_done:
                await charge(account, hold_id, final_cost)
            raise ServiceUnavailableError("no answer")
        return await charge(account, hold_id, final_cost)

    monkeypatch.setattr(api.stores.ledger, "charge", unanswered)
    monkeypatch.setattr("serve_app.services.charging.CHARGE_AGAIN_S", 0.05)
    async with charges.hold(CALLER, 10, "a") as hold:
        hold.final_cost = 4
    assert hold.charged == 4
    async with asyncio.timeout(30):
        while n_calls < 3 or await api.remaining("free") != 496:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await api.stores.ledger.balance("owner-free")).held == 0


async def test_a_repeat_of_what_was_charged_in_part_says_what_it_cost(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    for _ in range(2):
        async with charges.hold(CALLER, 10, "a") as hold:
            hold.final_cost = 4
        assert hold.charged == 4
    assert await api.remaining("free") == 496
