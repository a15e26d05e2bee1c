"""`afa similar` on a real library, and what it says when it cannot answer."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from serve_app.cli.main import app
from serve_app.library.edit import Edit
from serve_app.library.library import Library
from serve_app.library.track import LibraryTrack, Place, TrackFile
from tests.library.library_setting import adding, heard, track


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("AFA_LIBRARY", f"file://{tmp_path}/shared")
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    return Library(f"file://{tmp_path}/shared", tmp_path / "view")


def put(library: Library, title: str, near: float, path: Path | None = None) -> LibraryTrack:
    """Add a track whose vector is more or less close to the first axis."""
    vector = [near, (1 - near**2) ** 0.5, *([0.0] * 766)]
    what = heard(title)
    files = () if path is None else (TrackFile(Place.PATH, str(path)),)
    one = replace(track(title), files=files)
    features = replace(what.features, embedding=vector, camelot="8A", key=9, mode=0)
    library.write([adding(one, replace(what, features=features))])
    return one


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["similar", *arguments])


def test_an_id_and_a_file_are_compared_with_the_library(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "seed.mp3"
    file.touch()
    seed = put(library, "Seed", 1.0, file)
    put(library, "Far", 0.2)
    put(library, "Near", 0.9)
    for what in (seed.track_id, str(file)):
        answer = run(what, "--json", "--mixes")
        assert answer.exit_code == 0, answer.output
        found = json.loads(answer.stdout)
        assert [one["track"]["title"] for one in found] == ["Near", "Far"]
        assert (found[0]["distance"], found[0]["key_relation"]) == (0.1, "same")
    table = run(seed.track_id, "-n", "1").stdout
    assert "The Cure - Near" in table
    assert "same key" in table
    assert "Far" not in table


def test_a_file_is_the_track_that_it_holds_now(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "seed.mp3"
    file.touch()
    gone = TrackFile(Place.PATH, str(file), missing_since=datetime.now(UTC))
    gave_way = put(library, "Gave way", 0.2, file)
    library.write([Edit(gave_way.track_id, lambda was: was and replace(was, files=(gone,)))])
    put(library, "Seed", 1.0, file)
    put(library, "Near", 0.9)
    answer = run(str(file), "--json")
    assert answer.exit_code == 0, answer.output
    titles = [one["track"]["title"] for one in json.loads(answer.stdout)]
    assert titles == ["Near", "Gave way"]


def test_json_is_json_whatever_letters_the_locale_has(library: Library) -> None:
    seed = put(library, "Seed", 1.0)
    put(library, "Près \N{MUSICAL NOTE}", 0.9)
    told = run(seed.track_id, "--json").stdout
    (one,) = json.loads(told.encode("ascii", "backslashreplace"))
    assert one["track"]["title"] == "Près \N{MUSICAL NOTE}"


def test_what_is_not_known_says_what_to_do(library: Library) -> None:
    assert "afa scan" in run("trk_x").output
    put(library, "Near", 0.9)
    for what in ("isrc:QZAFA2600009", "no such file.mp3"):
        answer = run(what)
        assert answer.exit_code == 1, what
        assert what in answer.output


def test_a_name_that_is_not_utf_8_is_told(library: Library, tmp_path: Path) -> None:
    put(library, "Near", 0.9)
    file = tmp_path / os.fsdecode(b"caf\xe9.ogg")
    file.touch()
    answer = run(str(file))
    assert (answer.exit_code, "not UTF-8" in answer.output) == (1, True)


def test_a_title_commands_no_terminal(library: Library) -> None:
    seed = put(library, "Seed", 1.0)
    put(library, "\x1b[31mRed", 0.9)
    shown = run(seed.track_id).stdout
    assert r"\x1b[31mRed" in shown
    assert "\x1b[31m" not in shown
    told = run("trk_\x1b[31m").output
    assert r"trk_\x1b[31m" in told
    assert "\x1b[31m" not in told


def test_a_track_without_a_vector_is_told_of(library: Library) -> None:
    one = track("Never heard")
    library.write([adding(one, None)])
    answer = run(one.track_id)
    assert answer.exit_code == 1
    assert "it is silent, or has not been analysed" in answer.output


@pytest.mark.parametrize(
    "command",
    [["similar", "trk_x"], ["export", "rekordbox", "out.xml"], ["models", "embed", "musicnn-msd"]],
)
def test_reading_makes_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, [*command, "--data-dir", str(tmp_path / "mistyped")])
    assert answer.exit_code == 1
    assert f"no library in {tmp_path}/mistyped/library" in answer.output
    assert list(tmp_path.iterdir()) == []
