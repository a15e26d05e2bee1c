"""Which class runs a checkpoint: from a card and the cache to a network with its weights."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from models.cards import CardError, ModelCard
from models.checkpoints import load_tensors
from models.musicnn import Musicnn
from models.vibenet import Vibenet

_BUILDERS: dict[str, Callable[[ModelCard, Path], nn.Module]] = {
    "musicnn": lambda card, model_dir: Musicnn(load_tensors(card, model_dir)),
    "vibenet": lambda card, model_dir: Vibenet(load_tensors(card, model_dir)),
}


def build_network(card: ModelCard, model_dir: Path) -> nn.Module:
    """Build a checkpoint's network on the CPU, in float32.

    Args:
        card: Its ``network`` says which class runs it.
        model_dir: The model cache.

    Returns:
        A module that maps windows ``[B, window_length]`` to the card's named outputs ``[B, …]``.

    Raises:
        CheckpointError: The checkpoint is not in the cache, or not what the card says.
        CardError: No class here runs this card.
    """
    if card.network not in _BUILDERS:
        raise CardError(f"{card.model_id}: nothing runs a {card.network!r} network as windows")
    return _BUILDERS[card.network](card, model_dir)
