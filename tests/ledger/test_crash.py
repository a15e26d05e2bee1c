"""Kills and power cuts: nothing acknowledged is lost, nothing happens twice; and tests notice."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.store.lua import lua_files
from tests.soak.epoch import Epoch, Reckoning
from tests.soak.power import build_shim, has_compiler

pytestmark = [pytest.mark.redis, pytest.mark.timeout(900)]
OPERATIONS = 20_000
"""A million in ``tests/soak``."""

needs_compiler = pytest.mark.skipif(
    not has_compiler(), reason="power cuts need a C compiler (cc) for their fdatasync shim"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="afa-"))
    yield folder
    shutil.rmtree(folder)


def show(result: Reckoning) -> str:
    return f"{result.operations} operations, {dict(result.kills)}, {result.bytes_cut} bytes cut"


def test_kills_and_power_cuts_lose_and_double_nothing(folder: Path) -> None:
    actions = ["service"] * 6 + ["redis"] * 6
    shim = None
    if has_compiler():
        actions += ["power"] * 10
        shim = build_shim(folder)
    result = Epoch(folder, OPERATIONS, actions, shim=shim).run()
    assert result.is_exact, (
        show(result),
        result.lost[:5],
        result.doubled[:5],
        result.mismatches[:5],
    )
    assert result.operations >= OPERATIONS


@needs_compiler
def test_everysec_loses_at_a_power_cut(folder: Path) -> None:
    """If ``everysec`` lost nothing here, the test above would prove nothing."""
    result = Epoch(folder, 8_000, ["power"] * 3, fsync="everysec", shim=build_shim(folder)).run()
    assert result.bytes_cut > 0
    assert result.lost


def test_missing_persistence_is_noticed(folder: Path) -> None:
    assert Epoch(folder, 4_000, ["redis"], fsync="off").run().lost


def test_commit_that_counts_twice_is_noticed(folder: Path) -> None:
    lua = folder / "lua"
    for name, path in lua_files().items():
        copy = lua / f"{name}.lua"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    text = (lua / "lib" / "holds.lua").read_text(encoding="utf-8")
    broken = text.replace("if was == state and at_cost == final then", "if false then")
    broken = broken.replace("if was ~= 'held' then", "if was == 'voided' then", 1)
    assert broken.count("if false then") == 1
    (lua / "lib" / "holds.lua").write_text(broken, encoding="utf-8")
    result = Epoch(folder, 8_000, ["service"] * 6, lua=lua).run()
    assert result.doubled or result.mismatches
