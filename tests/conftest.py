"""Fixtures for every test: the model cards and the real default checkpoints.

Checkpoints are pulled once into AFA_MODEL_DIR (default: the user's cache) and stay there.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from torch import Tensor

from models.cards import ModelCard, parse_cards
from models.checkpoints import default_model_dir, load_tensors, pull


@pytest.fixture(scope="session")
def cards() -> dict[str, ModelCard]:
    """The cards of configs/models.yaml, by id."""
    table = Path(__file__).parents[1] / "configs" / "models.yaml"
    return parse_cards(yaml.safe_load(table.read_text()))


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The model cache of this machine."""
    return Path(os.environ.get("AFA_MODEL_DIR") or default_model_dir())


@pytest.fixture(scope="session")
def checkpoint(cards: dict[str, ModelCard], model_dir: Path) -> Callable[[str], dict[str, Tensor]]:
    """Give a real checkpoint's tensors by model id, pulling it when it is not there yet."""

    def load(model_id: str) -> dict[str, Tensor]:
        pull(cards[model_id], model_dir)
        return load_tensors(cards[model_id], model_dir)

    return load
