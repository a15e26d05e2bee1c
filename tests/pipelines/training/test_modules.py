"""Tracker modules: how libopenmpt plays one written here, and when rows show the beats."""

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest

from pipelines.training.modules import Grid, Module, grid_of, module_clips, play
from pipelines.training.music.score import UnusableError

ROW_S = 6 * 2.5 / 125
"""Seconds of a row in a module with the default speed and tempo."""
PERIOD_OF_C2 = 428


def library_is_there() -> bool:
    try:
        ctypes.CDLL("libopenmpt.so.0")
    except OSError:
        return False
    return True


needs_library = pytest.mark.skipif(not library_is_there(), reason="libopenmpt0 is not installed")


def write_module(path: Path, n_orders: int = 4) -> None:
    """Write a ProTracker module: a click on every fourth row, two more in each bar."""
    click = np.random.default_rng(0).integers(-100, 100, 400).astype(np.int8).tobytes()
    used = struct.pack(">22sHBBHH", b"click", len(click) // 2, 0, 64, 0, 1)
    empty = struct.pack(">22sHBBHH", b"", 0, 0, 0, 0, 1)
    orders = bytes(n_orders) + bytes(128 - n_orders)
    struck = {row for row in range(64) if row % 4 == 0 or row % 16 in (1, 2)}
    note = struct.pack(">HH", PERIOD_OF_C2, 1 << 12)
    rows = b"".join((note if row in struck else bytes(4)) + bytes(12) for row in range(64))
    head = b"song".ljust(20, b"\0") + used + empty * 30 + bytes([n_orders, 127]) + orders + b"M.K."
    path.write_bytes(head + rows + click)


def rows(
    n: int = 512, step_s: float = ROW_S, pattern: int = 64, every: int = 4, bar: int = 16
) -> Module:
    at = np.arange(n)
    n_notes = (at % every == 0).astype(np.int64) + 2 * (at % bar == 1)
    samples = np.ones(int(n * step_s * 22_050), dtype=np.float32)
    return Module(samples, at * step_s, at % pattern, at // pattern, n_notes)


@needs_library
def test_rows_are_told_when_they_sound(tmp_path: Path) -> None:
    write_module(tmp_path / "a.mod")
    module = play(tmp_path / "a.mod")
    assert np.diff(module.row_s) == pytest.approx(ROW_S, abs=0.002)
    assert module.n_notes[:6].tolist() == [1, 1, 1, 0, 1, 0]
    for row in (4, 8, 20):
        start = round(module.row_s[row] * 22_050)
        before, after = module.samples[start - 800 : start - 100], module.samples[start:][:200]
        assert np.abs(after).max() > 0.3 > 10 * np.abs(before).max()


@needs_library
def test_modules_become_clips_once_each(tmp_path: Path) -> None:
    for name in ("a.mod", "b.mod"):
        write_module(tmp_path / name)
    (tmp_path / "c.xm").write_bytes(b"no module")
    clips = list(module_clips(tmp_path, 20.0))
    assert [clip.label for clip in clips] == ["module:a"] * 2
    assert clips[0].beats[:3] == pytest.approx(4 * ROW_S * np.arange(3), abs=0.005)
    assert clips[0].downbeats[:3] == pytest.approx(16 * ROW_S * np.arange(3), abs=0.005)
    assert len(clips[0].bands) == 1000


def test_quick_rows_are_half_as_many_a_beat() -> None:
    usual = grid_of(rows())
    quick = grid_of(rows(1024, ROW_S / 2, every=8, bar=32))
    assert (usual.tempo, quick.tempo) == pytest.approx((125.0, 125.0))
    assert quick.downbeats == pytest.approx(usual.downbeats)


@pytest.mark.parametrize(
    "module",
    [
        rows(60),
        rows(pattern=48, bar=12),
        rows(pattern=40),
        rows(step_s=0.5),
        rows(bar=12, every=3),
    ],
    ids=["short", "three beats", "patterns of ten beats", "slow", "triplets"],
)
def test_what_has_no_clear_bars_is_refused(module: Module) -> None:
    with pytest.raises(UnusableError):
        grid_of(module)


def test_a_grid_is_of_beats_and_bars() -> None:
    grid: Grid = grid_of(rows())
    np.testing.assert_allclose(grid.downbeats, grid.beats[::4])
