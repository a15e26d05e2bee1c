"""What `afa models` prints for an operator."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.checkpoints.cards import ModelCard
from serve_app.cli import environment
from serve_app.cli.main import app


def test_a_narrow_terminal_shows_ids_roles_and_licences_whole(
    cards: dict[str, ModelCard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AFA_DATA_DIR", "AFA_MODEL_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(environment.console, "_width", 80)  # so that it can be undone
    done = CliRunner().invoke(app, ["models", "list"])
    assert done.exit_code == 0, done.output
    words = done.output.split()
    for card in cards.values():
        assert {card.model_id, card.role, card.licence} <= set(words)
    n_restricted = sum(card.licence_class == "noncommercial" for card in cards.values())
    assert words.count("(noncommercial)") == n_restricted == 2
