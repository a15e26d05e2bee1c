"""Commands that hear in their own process tell of a device that is not there."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard
from serve_app.cli.extractors import keyfinder
from serve_app.cli.main import app
from tests.data.audio_files import click_track, encode

TOLD = "no device 'cuda:9' here: "


@pytest.fixture(autouse=True)
def clip(
    cards: dict[str, ModelCard], model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    for model_id in ("vibenet", "musicnn-mtt", "afa-embed-1", "afa-beats-3"):
        pull(cards[model_id], model_dir)
    monkeypatch.setenv("AFA_MODEL_DIR", str(model_dir))
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("AFA_DEVICE", "cuda:9")
    path = tmp_path / "clip.ogg"
    encode(path, click_track(120, 4), "ogg", "vorbis")
    return path


@pytest.mark.parametrize("words", [["analyze", "--here"], ["embed"]])
def test_a_command_tells_of_a_device_that_is_not_there(words: list[str], clip: Path) -> None:
    told = CliRunner().invoke(app, [*words, str(clip)])
    assert told.exit_code == 1
    (line,) = told.stderr.splitlines()
    assert line.startswith(f"afa: {TOLD}")


def test_so_does_the_check_of_a_network() -> None:
    told = CliRunner().invoke(app, ["models", "check", "afa-beats-3"])
    assert told.exit_code == 1
    assert f"afa: {TOLD}" in told.stderr


def test_so_does_keyfinder(
    clip: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["keyfinder-cli", str(clip)])
    with pytest.raises(SystemExit) as end:
        keyfinder.main()
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(TOLD)
