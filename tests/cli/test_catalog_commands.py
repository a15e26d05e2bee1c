"""`afa catalog` with input that is odd or missing."""

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from serve_app.cli.main import app
from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.build import write_parquet

ISRC = "QZTST2100001"


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["catalog", *map(str, words)])


def test_brackets_in_a_name_are_shown(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    write_parquet([TrackIdentity(artist="[no artist]", title="x [/b] :x:", isrc=ISRC)], rows)
    assert run("import", rows).exit_code == 0
    found = run("find", ISRC)
    assert found.exit_code == 0, found.output
    assert "[no artist] - x [/b] :x:" in " ".join(found.stdout.split())


def test_what_is_still_to_be_published_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.parquet"
    write_parquet([TrackIdentity(artist="a", title="b", isrc=ISRC)], rows)
    assert "publish" not in run("import", rows).output
    monkeypatch.setenv("AFA_SHARED", (tmp_path / "shared").as_uri())
    for command in ("import", "fingerprint"):
        assert "`afa catalog publish` gives this to the service" in run(command, rows).output
    assert "generation" in run("publish").output


@pytest.mark.parametrize(
    "words",
    [
        ("musicbrainz", "absent.tar.xz", "out.parquet"),
        ("acousticbrainz", "absent.csv", "absent.csv", "out.parquet"),
        ("export", "out.parquet"),
    ],
)
def test_what_is_not_there_is_a_line(words: tuple[str, ...], tmp_path: Path) -> None:
    refused = run(words[0], *(tmp_path / word for word in words[1:]))
    assert refused.exit_code == 1
    assert isinstance(refused.exception, SystemExit)
    assert refused.stderr.startswith("afa: ")
    assert ("no catalog" if words[0] == "export" else "absent") in refused.stderr


def test_a_data_folder_that_is_a_file_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    refused = run("find", ISRC)
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"afa: {tmp_path / 'data'} is not a folder; name one with --data-dir or AFA_DATA_DIR\n",
    )


def test_a_pull_without_room_for_its_folder_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    refused = run("pull", "musicbrainz", "--from", tmp_path / "dump.tar.xz")
    assert refused.exit_code == 1
    assert "No space left" in refused.stderr
    assert f"GB are free at {tmp_path}. " in refused.stderr


def test_a_name_in_one_word_is_told_what_to_write() -> None:
    told = run("find", "Daft Punk").stderr
    assert told.startswith("afa: That is not a track identifier.")
    assert told.endswith("Or name the track: `afa catalog find ARTIST TITLE`.\n")


def test_a_name_that_is_not_utf_8_is_a_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    write_parquet([TrackIdentity(artist="a", title="b", isrc=ISRC)], rows)
    odd = rows.rename(tmp_path / "rows \udce9.parquet")
    refused = run("import", odd)
    assert refused.exit_code == 1
    assert "the name is not UTF-8; rename the file" in refused.stderr
