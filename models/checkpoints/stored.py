"""Where a checkpoint's weights are, for code that only looks and does not load torch."""

from pathlib import Path

from models.checkpoints.cards import SHIPPED, ModelCard

SHIPPED_FOLDER = Path(__file__).parents[1] / "weights"
"""Where the weights that come with afa are."""
WEIGHTS = "model.safetensors"


def weights_path(card: ModelCard, model_dir: Path) -> Path:
    """Return the path of a checkpoint's own weights, whether it exists or not."""
    if card.source == SHIPPED:
        return SHIPPED_FOLDER / card.files[0].path
    return model_dir / card.model_id / WEIGHTS


def is_stored(card: ModelCard, model_dir: Path) -> bool:
    """Return whether a checkpoint and its parts are on this machine, without checking digests."""
    is_here = card.format == "none" or weights_path(card, model_dir).is_file()
    return is_here and all(is_stored(part, model_dir) for part in card.parts)


def stored_bytes(card: ModelCard, model_dir: Path) -> int:
    """Return the size of a checkpoint's weights on disk, including its parts.

    Anything without weights, or absent, counts 0.
    """
    of_parts = sum(stored_bytes(part, model_dir) for part in card.parts)
    if card.format == "none":
        return of_parts
    try:
        return of_parts + weights_path(card, model_dir).stat().st_size
    except FileNotFoundError:
        return of_parts
