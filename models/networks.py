"""Which class runs a checkpoint: from a card and the cache to a network with its weights."""

from pathlib import Path

from torch import nn

from models.checkpoints.cache import load_tensors
from models.checkpoints.cards import CardError, ModelCard
from models.installed import build_installed, is_installed


def build_network(card: ModelCard, model_dir: Path) -> nn.Module:
    """Build a checkpoint's network on the CPU, in float32.

    The classes are imported here: transformers costs a replica 200 MB, and the default checkpoints
    do not need it.

    Args:
        card: Its ``network`` says which class runs it.
        model_dir: The model cache.

    Returns:
        A module that maps windows ``[B, window_length]`` to the card's named outputs ``[B, …]``.

    Raises:
        CheckpointError: The checkpoint is not in the cache, or does not match the card.
        CardError: No class here runs this card.
    """
    match card.network:
        case "musicnn":
            from models.musicnn import Musicnn

            return Musicnn(load_tensors(card, model_dir))
        case "efficientat":
            from models.efficientat import EfficientAt

            return EfficientAt(load_tensors(card, model_dir))
        case "vibenet":
            from models.vibenet import Vibenet

            return Vibenet(load_tensors(card, model_dir))
        case "ast":
            from models.trunks.ast import build_ast

            return build_ast(card, model_dir)
        case "maest":
            from models.trunks.ast import build_maest

            return build_maest(card, model_dir)
        case "mert":
            from models.trunks.mert import build_mert

            return build_mert(card, model_dir)
        case "ced":
            from models.trunks.ced import build_ced

            return build_ced(card, model_dir)
        case "clap" | "clap-joint":
            from models.trunks.clap import build_clap

            return build_clap(card, model_dir)
    if is_installed(card.network):
        return build_installed(card, model_dir)
    raise CardError(f"{card.model_id}: nothing runs a {card.network!r} network as windows")
