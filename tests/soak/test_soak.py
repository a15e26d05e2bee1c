"""The long fault tests: ``pytest -m slow tests/soak``, about an hour on two cores."""

import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger import lua_mutants
from tests.soak.backfill_kills import kill_and_resume, make_files
from tests.soak.backfill_nodes import backfill_s, can_confine, hearing, nodes
from tests.soak.epoch import Epoch
from tests.soak.job_storm import Storm
from tests.soak.power import build_shim, has_compiler
from tests.soak.town import Town

EPOCHS = 20
TOWNS = 5
OPERATIONS = 50_000
ACTIONS = ["service"] * 4 + ["redis"] * 10 + ["power"] * 10

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.timeout(7200)]


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(not has_compiler(), reason="power cuts need a C compiler (cc) for their shim")
@pytest.mark.parametrize("seed", range(EPOCHS))
def test_million_operations_under_kills_and_power_cuts(folder: Path, seed: int) -> None:
    result = Epoch(folder, OPERATIONS, ACTIONS, shim=build_shim(folder), seed=seed).run()
    sys.stdout.write(f"{result.operations} operations, {dict(result.kills)}\n")
    assert result.lost == []
    assert result.doubled == []
    assert result.mismatches == []
    assert result.operations >= OPERATIONS


async def test_ten_thousand_jobs_whose_workers_are_killed(folder: Path) -> None:
    storm = Storm(folder, jobs=10_000)
    await storm.go()
    sys.stdout.write(f"{storm.deaths} workers died\n")
    assert storm.deaths >= 46


@pytest.mark.parametrize("seed", range(TOWNS))
async def test_a_town_comes_back_from_its_archive_and_from_a_backup(
    folder: Path, seed: int
) -> None:
    """Three months, two primaries lost at random, one of them possibly as the month changes."""
    chance = random.Random(seed)
    lose_at = {month: chance.random() < 0.5 for month in chance.sample(range(3), 2)}
    town = Town(folder, accounts=200, rate=20, kills=3, seed=seed)
    figures = await town.epoch(3, lose_at, backup_at=chance.randrange(3))
    sys.stdout.write(f"{lose_at} {figures}\n")
    assert figures.differences == []
    assert set(figures.reconciled) == {"exact"}
    assert figures.failovers == 2
    assert min(figures.lost_archived, figures.lost_for_good) > 0


@pytest.mark.ray
def test_a_backfill_of_500_files_is_killed_three_times(folder: Path) -> None:
    source = make_files(folder / "music", 490, n_broken=10)
    done = kill_and_resume(source, folder, kill_at=(100, 230, 380), actors=2)
    sys.stdout.write(f"in the library at each kill: {done.kept}; {done.told}")
    assert (done.lost, done.doubled, done.other, done.redone) == ([], [], [], [])
    assert (done.n_tracks, done.n_errors) == (490, 10)


@pytest.mark.ray
@pytest.mark.skipif(not can_confine(), reason="no control group to set a share of a processor in")
def test_a_backfill_on_two_nodes_is_nearly_twice_as_fast(folder: Path) -> None:
    """Compares the files per second that a longer run adds, on nodes with one processor each."""
    n_few, n_many = 32, 128
    few, many = (make_files(folder / f"{n}", n, duration_s=30) for n in (n_few, n_many))

    def rate(n: int) -> float:
        with nodes(n) as reached:
            took_s = [backfill_s(one, folder / f"{n} {one.name}", reached) for one in (few, many)]
        sys.stdout.write(f"{n} nodes: {n_few} files in {took_s[0]:.1f} s, ")
        sys.stdout.write(f"{n_many} in {took_s[1]:.1f} s\n")
        return (n_many - n_few) / (took_s[1] - took_s[0])

    with hearing(few, 1) as passes_s:
        one = rate(1)
    bare = n_few * len(passes_s) / sum(passes_s)
    two = rate(2)
    sys.stdout.write(f"files a second: bare {bare:.2f}, one node {one:.2f}, two {two:.2f}\n")
    assert one >= 0.9 * bare
    assert two >= 1.8 * one


# A case that detects a mutant leaves its connections open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_every_mutant_of_the_scripts_is_killed() -> None:
    assert asyncio.run(lua_mutants.main([])) == 0
