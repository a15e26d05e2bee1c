"""Turns words into a vector comparable with those of the library."""

from typing import Protocol

from serve_app.checkpoints.named import NamedModels


class TextBackend(Protocol):
    """The embedding deployment, as text search sees it."""

    async def embed_text(self, text: str, model: str) -> list[float]:
        """Return the vector of a text, in the space of a model that reads text.

        Raises:
            BadRequestError: The model cannot read the text.
            ServiceUnavailableError: No replica is free, or none answers in time.
        """
        ...


class Words:
    """Chooses the model to compare words by, and gets their vector."""

    def __init__(self, models: NamedModels, backend: TextBackend) -> None:
        self._models = models
        self._backend = backend

    async def vector(self, text: str, model: str | None) -> tuple[str, list[float]]:
        """Return the model (by default the one in use) and its vector of the text.

        Raises:
            BadRequestError: The model does not read text, or not this one.
            ServiceUnavailableError: No replica could read the text now.
        """
        able = self._models.text_model(model)
        return able, await self._backend.embed_text(text, able)
