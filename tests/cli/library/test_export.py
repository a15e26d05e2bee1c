"""How `afa export` puts a file in its place, and what it says of a damaged library."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli.environment import damaged_view_told
from serve_app.cli.library.export import replaced
from serve_app.cli.main import app
from serve_app.library.library import Library
from tests.library.library_setting import adding, heard, track


def test_of_two_exports_at_once_each_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "dj.xml"
    with replaced(file) as first:
        first.write_text("first")
        with replaced(file) as second:
            second.write_text("second")
        assert file.read_text() == "second"
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    file = tmp_path / f"{'x' * 251}.csv"
    with replaced(file) as staged:
        staged.write_text("all")
    assert file.read_text() == "all"


def spoil_table(view: sqlite3.Connection, data: bytearray) -> None:
    """Overwrite the page that leads to the tracks' records."""
    (page,) = view.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'record'").fetchone()
    (size,) = view.execute("PRAGMA page_size").fetchone()
    data[(page - 1) * size : page * size] = b"\xa5" * size


def spoil_record(view: sqlite3.Connection, data: bytearray) -> None:
    """Change the end of a track's record, which is compressed."""
    (record,) = view.execute("SELECT record FROM record").fetchone()
    end = data.index(record[-8:]) + 8
    data[end - 8 : end] = bytes(8)


@pytest.mark.parametrize("spoil", [spoil_table, spoil_record])
def test_a_view_damaged_in_its_middle_is_one_line(
    tmp_path: Path, spoil: Callable[[sqlite3.Connection, bytearray], None]
) -> None:
    view_dir = tmp_path / "library-view"
    library = Library((tmp_path / "library").as_uri(), view_dir)
    library.write([adding(track(), heard("it"))])
    library.close()
    (file,) = view_dir.glob("*.sqlite")
    view = sqlite3.connect(file)
    data = bytearray(file.read_bytes())
    spoil(view, data)
    view.close()
    file.write_bytes(data)
    out = str(tmp_path / "out.csv")
    done = CliRunner().invoke(app, ["export", "csv", out, "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"afa: {view_dir}: ")
    assert done.stderr.endswith("and remove it: the library's view is made again\n")


def test_a_fault_of_ours_is_not_taken_for_damage() -> None:
    view = sqlite3.connect(":memory:")
    view.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"), damaged_view_told():
        view.execute("SELECT 1")
