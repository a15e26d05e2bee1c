"""The directed cases of ledger and top-up on the real scripts."""

from collections.abc import Awaitable, Callable

import pytest

from tests.ledger.ledger_cases import LEDGER_CASES
from tests.ledger.plan_cases import PLAN_CASES
from tests.ledger.topup_cases import TOPUP_CASES
from tests.store.setting import Setting

pytestmark = pytest.mark.redis


@pytest.mark.parametrize(
    "case", LEDGER_CASES + PLAN_CASES + TOPUP_CASES, ids=lambda case: case.__name__
)
async def test_case(setting: Setting, case: Callable[[Setting], Awaitable[None]]) -> None:
    await case(setting)
