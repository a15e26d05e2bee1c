"""Networks of other packages: an entry point of ours, or `package.module:Class` in the card.

The operator installs such a package; nothing from a card's source is ever run.
"""

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from torch import nn

from models.checkpoints.cache import load_json, load_tensors
from models.checkpoints.cards import CardError, ModelCard

GROUP = "afa.networks"
"""The entry points whose names a card's ``network`` may be."""

REMEDY = (
    "install its package wherever networks run (`pip install FOLDER`), or start in its folder, the "
    "service too"
)


def is_installed(network: str) -> bool:
    """Return whether a card's ``network`` is a class of another package."""
    return ":" in network or bool(entry_points(group=GROUP, name=network))


def build_installed(card: ModelCard, model_dir: Path) -> nn.Module:
    """Build a network of another package.

    The class is called with the checkpoint's tensors (name to tensor) and the content of its
    ``config.json`` (empty if its card names none).

    Raises:
        CheckpointError: The checkpoint is not in the cache, or does not match the card.
        CardError: The class cannot be imported, or does not accept this checkpoint.
    """
    tensors = {} if card.format == "none" else load_tensors(card, model_dir)
    config: dict[str, Any] = {}
    if any(Path(file.path).name == "config.json" for file in card.files):
        config = load_json(card, model_dir)
    try:
        network = _class(card.network)(tensors, config)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason += f"; {REMEDY}"
        raise CardError(f"{card.model_id}: {card.network} cannot be built: {reason}") from error
    if not isinstance(network, nn.Module):
        raise CardError(f"{card.model_id}: {card.network} is not a torch.nn.Module")
    return network


def _class(network: str) -> Any:
    for entry_point in entry_points(group=GROUP, name=network):
        return entry_point.load()
    module, _, name = network.partition(":")
    return getattr(import_module(module), name)
