"""Broken scripts do not pass the directed cases; ``tests/soak`` runs every mutant there is."""

import pytest

from serve_app.local.embedded_redis import LocalRedis
from tests.ledger.lua_mutants import EQUIVALENT, Mutant, files, mutants, survivors

pytestmark = pytest.mark.redis

BOUNDARIES = {" > ", " >= ", " < ", " <= "}
MONEY = (
    *("hold_operations", "lib/holds", "lib/ledger", "lib/calendar"),
    *("job_check", "job_heartbeat", "job_fail"),
)


def boundary_mutants() -> list[Mutant]:
    return [m for file in MONEY for m in mutants(file) if m.change in BOUNDARIES]


@pytest.mark.slow
async def test_every_moved_boundary_is_noticed(redis_server: LocalRedis) -> None:
    wanted = boundary_mutants()
    assert len(wanted) > 20
    assert [str(m) for m in await survivors(redis_server.url, wanted)] == []


def test_equivalent_mutants_exist() -> None:
    names = {mutant.name for file in files() for mutant in mutants(file)}
    assert set(EQUIVALENT) <= names
