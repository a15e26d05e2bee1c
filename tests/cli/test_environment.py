"""What a command says about an error, in one line, and which files it writes."""

import errno
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli.environment import full_disk_told, reason, replaceable, writable, written
from serve_app.cli.main import app
from serve_app.domain.errors import ServiceUnavailableError


def test_an_error_of_the_system_is_told_without_its_number() -> None:
    assert reason(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"
    error = OSError(errno.EROFS, "Read-only file system", "/music")
    assert reason(error) == "/music: Read-only file system"
    assert reason(OSError("the bucket is away")) == "the bucket is away"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_spent_quota_are_one_line(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), full_disk_told():
        raise OSError(number, os.strerror(number))
    assert capsys.readouterr().err.strip() == f"afa: {os.strerror(number)}"


def test_a_cause_is_told_without_the_line_of_its_source() -> None:
    error = ServiceUnavailableError("the store is away; try again", 5)
    error.__cause__ = OSError(
        "LanceError(IO): No space left on device (os error 28), /home/x/lance-file/src/w.rs:254:9"
    )
    expected = (
        "the store is away; try again (LanceError(IO): No space left on device (os error 28))"
    )
    assert reason(error) == expected


def test_a_dash_is_standard_output_and_a_file_of_that_name_has_a_folder(tmp_path: Path) -> None:
    assert written(Path("-")) == Path("/dev/stdout")
    assert written(tmp_path / "-") == tmp_path / "-"
    assert written(None) is None
    with pytest.raises(SystemExit):
        written(tmp_path)


def test_no_file_takes_the_place_of_a_pipe_or_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file.parquet"
    os.mkfifo(pipe)
    file.touch()
    for place in (pipe, Path("/dev/null"), Path("/dev/stdout")):
        assert writable(place) == place
        with pytest.raises(SystemExit):
            replaceable(place)
        assert f"cannot write {place}: name a file" in capsys.readouterr().err
    assert [replaceable(file), replaceable(None)] == [file, None]


def test_commands_that_replace_a_file_refuse_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    archive = (tmp_path / "archive").as_uri()
    for command in (
        ["ledger", "export", archive, "--parquet", str(pipe)],
        ["catalog", "export", str(pipe)],
    ):
        done = CliRunner().invoke(app, command)
        assert (done.exit_code, "name a file, which takes its place" in done.stderr) == (1, True)
    assert pipe.is_fifo()
