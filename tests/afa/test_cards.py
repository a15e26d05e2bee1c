"""The operator's own cards: a wrong one does not affect the others."""

import logging
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import afa
from afa.cards import known_cards, read_cards, usable_cards
from configs.settings import Settings
from models.checkpoints.cards import CardError
from serve_app.cli.extractors.keyfinder import key_of
from serve_app.cli.main import app
from serve_app.cli.models import pull_defaults
from serve_app.composition.options import ModelOptions
from tests.conftest import DEMO_TRACK
from tests.data.small_checkpoints import ast_card, write_ast

WRONG = {
    "1:\n  role: embedding\n": "1: an id is text, as my-net",
    "bad:\n  role: embedding\n": "bad: window is missing",
    "bad: 3\n": "bad: a card has fields",
    "vibenet:\n  role: embedding\n": "vibenet is the id of another card",
}
UNREADABLE = {
    b"own: {\n": "is not YAML",
    b"- own\n": "must map model ids",
    "own: é\n".encode("latin-1"): "is not UTF-8",
    b"own: {licence: 2026-13-45}\n": "is not YAML",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the YAML of a correct card."""
    folder = tmp_path_factory.mktemp("own-ast")
    write_ast(folder, 0)
    return yaml.safe_dump({"own-ast": ast_card(folder)})


@pytest.mark.parametrize("wrong", WRONG)
def test_a_card_that_is_wrong_is_left_out_of_a_service_and_logged_once(
    wrong: str, own: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text(wrong + own)
    with caplog.at_level(logging.ERROR):
        assert {"own-ast", "vibenet"} <= usable_cards(tmp_path).keys()
        usable_cards(tmp_path)
    (line,) = caplog.messages
    assert line.startswith(f"left out: {path}: {WRONG[wrong]}")
    with pytest.raises(CardError, match=f"{path}: {WRONG[wrong]}"):
        known_cards(tmp_path)
    chosen = ModelOptions(model_dir=tmp_path).cards({"embedding": "own-ast"})
    assert chosen["embedding"][0].model_id == "own-ast"


def test_two_cards_with_one_id_are_told_and_the_last_counts(
    own: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text(own + own.replace("licence: ", "licence: LicenseRef-second-"))
    told = f"{path}: own-ast has 2 cards, and only the last counts; remove the others"
    with caplog.at_level(logging.ERROR):
        assert usable_cards(tmp_path)["own-ast"].licence.startswith("LicenseRef-second-")
    assert caplog.messages == [f"left out: {told}"]
    for read in (lambda: known_cards(tmp_path), lambda: read_cards(path)):
        with pytest.raises(CardError, match=f"^{re.escape(told)}$"):
            read()


@pytest.mark.parametrize("content", UNREADABLE)
def test_a_file_that_is_none_leaves_those_of_afa(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "cards.yaml").write_bytes(content)
    assert usable_cards(tmp_path) == usable_cards(tmp_path / "none") != {}
    with pytest.raises(CardError, match=f"cards.yaml {UNREADABLE[content]}"):
        known_cards(tmp_path)


def test_a_card_that_is_wrong_hinders_neither_a_start_nor_the_defaults(
    tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("vibenet", "musicnn-mtt", "musicnn-msd-768"):
        (tmp_path / name).symlink_to(model_dir / name)
    (tmp_path / "cards.yaml").write_text("bad: 3\n")
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))
    pull_defaults(Settings())
    assert afa.Analyzer("cpu").analyze(DEMO_TRACK).tempo
    assert key_of(DEMO_TRACK) != (-1, -1)
    with pytest.raises(afa.ModelError, match="bad: a card has fields"):
        afa.Analyzer("cpu", {"embedding": "bad"})


@pytest.mark.parametrize("command", [("list",), ("check", "own"), ("pull", "own"), ("verify",)])
def test_the_commands_tell_it_in_a_line(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AFA_DATA_DIR", "AFA_MODEL_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "cards.yaml").write_text(next(iter(WRONG)))
    done = CliRunner().invoke(app, ["models", *command])
    assert done.exit_code == 1
    assert done.output == f"afa: {tmp_path}/cards.yaml: 1: an id is text, as my-net\n"
