"""What the commands print and return when there is nothing to analyse, as the originals do."""

import json
import sys
from pathlib import Path

import pytest

from serve_app.cli.extractors import keyfinder, music
from tests.data.audio_files import silent_flac


def run(monkeypatch: pytest.MonkeyPatch, main: object, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
    try:
        main()  # type: ignore[operator]
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 1, "Usage"),
        (["-x"], 1, "Usage"),
        (["-h"], 0, "Usage"),
        (["-n", "german", "a.mp3"], 1, "Invalid key notation"),
        (["nothing.mp3"], 1, "nothing.mp3"),
    ],
)
def test_keyfinder_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    said: str,
) -> None:
    assert run(monkeypatch, keyfinder.main, *arguments) == status
    shown = capsys.readouterr()
    assert said in (shown.err if status else shown.out)


@pytest.mark.parametrize(
    ("notation", "name"), [("standard", "Gbm"), ("camelot", "11A"), ("openkey", "4m")]
)
def test_keyfinder_knows_three_notations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], notation: str, name: str
) -> None:
    monkeypatch.setattr(keyfinder, "key_of", lambda path: (6, 0))
    assert run(monkeypatch, keyfinder.main, "-n", notation, "a.mp3") == 0
    assert capsys.readouterr().out == f"{name}\n"


def test_keyfinder_is_quiet_about_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, keyfinder.main, silent_flac(tmp_path / "a.flac", 5)) == 0
    assert capsys.readouterr() == ("", "")


def test_the_extractor_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, music.main, "a.mp3") == 1
    assert "wrong number of arguments" in capsys.readouterr().out
    output = tmp_path / "a.json"
    assert run(monkeypatch, music.main, tmp_path / "no.mp3", output, "profile.yaml") == 1
    said = capsys.readouterr().err
    assert ("profiles are ignored" in said, "no.mp3" in said) == (True, True)
    assert not output.exists()


def test_the_extractor_takes_names_from_tags_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    audio, output = tmp_path / "Ada - Lanterns.flac", tmp_path / "out.json"
    silent_flac(audio, 5)
    assert run(monkeypatch, music.main, audio, output) == 0
    document = json.loads(output.read_text())
    assert document["metadata"]["tags"] == {"file_name": "Ada - Lanterns.flac"}
    assert document["tonal"] == {}
