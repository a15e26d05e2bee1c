"""Keep what torch compiles for a checkpoint in its folder, so that a fleet compiles only once.

A file holds code: anyone who can write to the model folder can run code in the service.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from models.checkpoints.cache import stored_digest
from models.checkpoints.cards import ModelCard

logger = logging.getLogger(__name__)


class CompiledFile:
    """The compiled forwards of one checkpoint for one kind of GPU and one version of torch.

    Args:
        path: Where they are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._restored: set[str] = set()

    @classmethod
    def of(cls, card: ModelCard, model_dir: Path, device: torch.device) -> "CompiledFile":
        """Return the file for a checkpoint's weights, a kind of GPU and a version of torch.

        Raises:
            CheckpointError: The checkpoint is absent or damaged.
        """
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        digest = stored_digest(card, model_dir)[:12]
        key = f"{name.replace(' ', '-')}-torch{torch.__version__}-{digest}"
        return cls(model_dir / card.model_id / f"compiled-{key}.bin")

    def restore(self) -> bool:
        """Load the file into torch before it compiles; return whether it held anything."""
        try:
            kept = self.path.read_bytes()
        except OSError:
            return False
        info = torch.compiler.load_cache_artifacts(kept)
        if info is None:
            return False
        self._restored = _keys(info.artifacts)
        return True

    def keep(self) -> None:
        """Save what torch has compiled so far, unless all of it was restored.

        It was not if batch sizes, precision or the network's code have changed since. An unwritable
        folder only logs a warning.
        """
        made = torch.compiler.save_cache_artifacts()
        if made is None or _keys(made[1].artifacts) <= self._restored:
            return
        scratch = self.path.with_suffix(f".{os.getpid()}")
        try:
            scratch.write_bytes(made[0])
            scratch.replace(self.path)
        except OSError as error:
            logger.warning("every replica compiles for itself: %s", error)


def _keys(artifacts: Mapping[str, Sequence[str]]) -> set[str]:
    return {key for keys in artifacts.values() for key in keys}
