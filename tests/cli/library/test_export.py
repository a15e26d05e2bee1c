"""How `afa export` puts a file in its place."""

from pathlib import Path

from serve_app.cli.library.export import replaced


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
