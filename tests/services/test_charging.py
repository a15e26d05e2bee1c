"""A hold ends with its operation, once, whatever happens and however often it is repeated."""

import asyncio

import pytest

from serve_app.domain.errors import InsufficientCreditsError, ServiceUnavailableError
from serve_app.domain.keys import Caller
from serve_app.services.charging import Charging
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


async def test_too_little_is_refused_before_anything_is_done(
    charging: tuple[Charging, Application],
) -> None:
    charges, api = charging
    with pytest.raises(InsufficientCreditsError):
        async with charges.hold(CALLER, 501, "a"):
            raise AssertionError("must not run")
    assert await api.remaining("free") == 500
