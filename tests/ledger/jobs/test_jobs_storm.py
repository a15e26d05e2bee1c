"""Jobs while their workers are killed; the long version is in ``tests/soak``."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.soak.job_storm import Storm


@pytest.mark.redis
async def test_every_job_ends_once_while_workers_are_killed() -> None:
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    storm = Storm(folder, jobs=1_000)
    await storm.go()
    shutil.rmtree(folder)
    assert storm.deaths >= 3
