"""The cards that this machine knows: those that come with afa, and the operator's own."""

import logging
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from configs.tables import load_table
from models.checkpoints.cards import CardError, ModelCard, parse_cards

logger = logging.getLogger(__name__)

OWN_CARDS = "cards.yaml"
"""Cards of the operator's own checkpoints, in the model folder; same format as ours."""


def known_cards(model_dir: Path) -> dict[str, ModelCard]:
    """Return every card: those that come with afa, and the operator's own.

    Raises:
        CardError: A card is malformed, or its id is already in use.
    """
    cards, faults = _read(model_dir)
    if faults:
        raise CardError(faults[0])
    return cards


def usable_cards(model_dir: Path) -> dict[str, ModelCard]:
    """Return every card as `known_cards` does, but log malformed cards and leave them out."""
    cards, faults = _read(model_dir)
    _log(faults)
    return cards


def read_cards(path: Path) -> dict[str, ModelCard]:
    """Read a file of cards; the parts of a card may be cards that come with afa.

    Raises:
        CardError: It is not a file of cards, or a card is malformed or its id already in use.
    """
    try:
        table, twice = _table(path)
    except OSError as error:
        raise CardError(f"{path} cannot be read: {error.strerror}") from error
    if twice:
        raise CardError(twice[0])
    return parse_cards(table, _shipped())


@lru_cache(maxsize=8)
def _log(faults: tuple[str, ...]) -> None:
    """Log what is wrong with cards, once instead of at every request."""
    for fault in faults:
        logger.error("left out: %s", fault)


@cache
def _shipped() -> dict[str, ModelCard]:
    return parse_cards(load_table("models"))


def _read(model_dir: Path) -> tuple[dict[str, ModelCard], tuple[str, ...]]:
    """Return the valid cards, and what is wrong with the operator's other cards."""
    path = model_dir / OWN_CARDS
    try:
        changed_ns = path.stat().st_mtime_ns
        return _parsed(path, changed_ns)
    except FileNotFoundError:
        return _shipped(), ()
    except OSError as error:
        return _shipped(), (f"{path} cannot be read: {error.strerror}",)


@lru_cache(maxsize=8)
def _parsed(path: Path, changed_ns: int) -> tuple[dict[str, ModelCard], tuple[str, ...]]:
    del changed_ns  # part of the cache key: a changed file is read again
    try:
        table, faults = _table(path)
    except CardError as error:
        return _shipped(), (str(error),)
    cards = dict(_shipped())
    for model_id, fields in table.items():
        try:
            cards |= parse_cards({model_id: fields}, cards)
        except CardError as error:
            faults.append(f"{path}: {error}")
    return cards, tuple(faults)


def _table(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of each id, and what is wrong: YAML takes the last of two equal ids."""
    try:
        text = path.read_text(encoding="utf-8")
        table = yaml.safe_load(text) or {}
    except UnicodeDecodeError as error:
        raise CardError(f"{path} is not UTF-8") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        at = getattr(error, "problem_mark", None)
        where = "" if at is None else f" in line {at.line + 1}"
        raise CardError(f"{path} is not YAML{where}") from error
    if not isinstance(table, dict):
        raise CardError(f"{path} must map model ids to the fields of their cards")
    root = yaml.compose(text, yaml.SafeLoader)
    ids = Counter(key.value for key, _ in root.value) if isinstance(root, yaml.MappingNode) else {}
    told = "only the last counts; remove the others"
    return table, [f"{path}: {one} has {n} cards, and {told}" for one, n in ids.items() if n > 1]
