"""The directed cases of limits, keys, idempotency, webhooks and export on the real scripts."""

from collections.abc import Awaitable, Callable

import pytest

from tests.store.setting import Setting
from tests.store.traffic_cases import TRAFFIC_CASES

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("case", TRAFFIC_CASES, ids=lambda case: case.__name__)
async def test_case(setting: Setting, case: Callable[[Setting], Awaitable[None]]) -> None:
    await case(setting)
