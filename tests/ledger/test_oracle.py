"""Two months under kills and a failover, compared with an oracle of the specification."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.town import Town

pytestmark = [pytest.mark.redis, pytest.mark.timeout(900)]


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    yield folder
    shutil.rmtree(folder)


async def test_the_ledger_does_what_the_specification_says(folder: Path) -> None:
    town = Town(folder, accounts=12, rate=40, kills=1, seed=9)
    figures = await town.epoch(months=1, lose_at={0: True})
    assert figures.differences == []
    assert figures.operations == 5 * 12 * 40
    assert set(figures.reconciled) == {"exact"}
    assert min(figures.lost_archived, figures.lost_for_good) > 100
    assert {"OK", "NOFUNDS", "NONE", "CLOSED:reaped"} <= set(figures.answers)
