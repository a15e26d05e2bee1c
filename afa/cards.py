"""The cards that this machine knows: those that come with afa, and the operator's own."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from configs.tables import load_table
from models.checkpoints.cards import CardError, ModelCard, parse_cards

OWN_CARDS = "cards.yaml"
"""Cards of the operator's own checkpoints, in the model folder; written like ours."""


def known_cards(model_dir: Path) -> dict[str, ModelCard]:
    """Give every card: those that come with afa, and the operator's own.

    Raises:
        CardError: A card is malformed, or has an id that is taken.
    """
    path = model_dir / OWN_CARDS
    try:
        return _parsed_cards(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return _parsed_cards(None, 0)


def read_cards(path: Path) -> dict[str, ModelCard]:
    """Read a file of cards.

    Raises:
        CardError: It is none, or a card in it is malformed.
    """
    return parse_cards(_table(path))


@lru_cache(maxsize=8)
def _parsed_cards(own: Path | None, changed_ns: int) -> dict[str, ModelCard]:
    del changed_ns  # part of the key: a changed file is read again
    table: dict[str, Any] = load_table("models")
    if own is not None:
        more = _table(own)
        taken = table.keys() & more.keys()
        if taken:
            raise CardError(f"{own}: {', '.join(sorted(taken))} is the id of another card")
        table |= more
    return parse_cards(table)


def _table(path: Path) -> dict[str, Any]:
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise CardError(f"{path} is not YAML: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(card, dict) for card in table.values()):
        raise CardError(f"{path} must map model ids to the fields of their cards")
    return table
