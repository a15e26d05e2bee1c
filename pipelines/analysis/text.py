"""Text as vectors, for checkpoints whose text and audio vectors share one space."""

import asyncio
from pathlib import Path

from models.checkpoints.cards import ModelCard
from pipelines.analysis.embedding import unit_vector


class Texts:
    """Keeps the most recently used text tower; it runs on the CPU, one text at a time."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._loaded_id = ""
        self._lock = asyncio.Lock()

    async def embed(self, text: str, card: ModelCard) -> list[float]:
        """Return the vector of a text, with norm 1 and the same length as those of audio.

        Raises:
            CheckpointError: The checkpoint is not on this machine, or does not match its card.
            UnreadableTextError: The checkpoint has no tokens for the text.
        """
        async with self._lock:
            return await asyncio.to_thread(self._embed, text, card)

    def _embed(self, text: str, card: ModelCard) -> list[float]:
        if self._loaded_id != card.model_id:
            from models.trunks.clap import build_clap_text  # transformers costs 200 MB

            self._tower = build_clap_text(card, self._model_dir)
            self._loaded_id = card.model_id
        vector: list[float] = unit_vector(self._tower(text)).tolist()
        return vector
