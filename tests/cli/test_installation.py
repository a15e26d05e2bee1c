"""What all commands share: the folder of the installation, and one line for a wrong setting."""

import json
import os
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from serve_app.cli.environment import errors
from serve_app.cli.main import app
from serve_app.cli.service import refuse_another
from serve_app.store.client import NO_ADDRESS


def afa(*words: str, env: dict[str, str] | None = None) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors, "_width", 400)
        return CliRunner().invoke(app, list(words), env=env)


def leaves(command: object, name: str = "afa") -> list[tuple[str, set[str]]]:
    below = getattr(command, "commands", None)
    if below is None:
        options = {option for parameter in command.params for option in parameter.opts}  # type: ignore[attr-defined]
        return [(name, options)]
    return [leaf for word, one in below.items() for leaf in leaves(one, f"{name} {word}")]


def test_every_command_takes_the_folder() -> None:
    found = leaves(get_command(app))
    assert len(found) > 40
    assert [name for name, options in found if "--data-dir" not in options] == []


def test_the_folder_decides_which_service_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "other"))
    (tmp_path / "session.json").write_text(json.dumps({"local_key": "afa_live_here"}))
    assert afa("keys", "local").exit_code == 1
    assert afa("keys", "local", "--data-dir", str(tmp_path)).output == "afa_live_here\n"


def test_the_folder_has_a_name() -> None:
    done = afa("status", "--data-dir", "")
    assert done.exit_code == 2
    assert "Invalid value for '--data-dir': empty; name a folder" in done.output


def test_a_folder_without_a_ledger_is_named(tmp_path: Path) -> None:
    done = afa("keys", "list", "--data-dir", str(tmp_path))
    assert done.exit_code == 1
    for part in (f"no Redis was started in {tmp_path}", "`afa up`", "--data-dir", "REDIS_URL"):
        assert part in done.output


def test_a_folder_below_a_file_has_no_service(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = afa("down", "--data-dir", str(tmp_path / "file" / "data"))
    assert done.exit_code == 0, done.output
    assert "not running" in done.output


@pytest.mark.parametrize(
    ("command", "url"),
    [
        ("keys list", "redis://:se/cret@host"),
        ("keys list", "redis+cluster://:se/cret@host"),
        ("keys list", "redis+cluster://:secret@host?ssl=true"),
        ("models list", "redis://:secret@host/0?bad=1"),
        ("backup kept", "redis://:secret@host/0?bad=1"),
    ],
)
def test_what_is_no_address_of_a_redis_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "pepper").write_text("pepper")
    done = afa(*command.split(), "--data-dir", "data", env={"REDIS_URL": url})
    assert done.exit_code == 1
    assert done.output.splitlines() == [f"afa: {NO_ADDRESS}"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("AFA_CORS_ORIGINS", "https://a.example", 'AFA_CORS_ORIGINS must be JSON, such as ["one"'),
        ("AFA_LEDGER_SHARDS", "many", "AFA_LEDGER_SHARDS: Input should be a valid integer"),
    ],
)
def test_a_wrong_setting_is_one_line(name: str, value: str, told: str) -> None:
    done = afa("status", env={name: value})
    assert done.exit_code == 1
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_service_that_runs_elsewhere_than_asked_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "http://127.0.0.1:8000"
    refuse_another(url, tmp_path, None, None)
    refuse_another(url, tmp_path, "127.0.0.1", 8000)
    with pytest.raises(SystemExit):
        refuse_another(url, tmp_path, None, 8001)
    told = capsys.readouterr().err.replace(os.linesep, "")
    for part in (str(tmp_path), url, "`afa down`", "`afa up --port 8001 --data-dir OTHER`"):
        assert part in told
