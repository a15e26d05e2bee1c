"""Words as a vector among those of the library."""

from typing import Protocol

from serve_app.checkpoints.named import NamedModels


class TextBackend(Protocol):
    """The embedding deployment, as text search sees it."""

    async def embed_text(self, text: str, model: str) -> list[float]:
        """Return the vector of a text among those of a model that reads text.

        Raises:
            ServiceUnavailableError: No replica is free or answers in time.
        """
        ...


class Words:
    """Knows whose vectors words are compared with, and asks for theirs."""

    def __init__(self, models: NamedModels, backend: TextBackend) -> None:
        self._models = models
        self._backend = backend

    async def vector(self, text: str, model: str | None) -> tuple[str, list[float]]:
        """Return the model, the one in use if None is asked for, and its vector of the text.

        Raises:
            BadRequestError: The model reads no text.
            ServiceUnavailableError: Nobody could read the text now.
        """
        able = self._models.text_model(model)
        return able, await self._backend.embed_text(text, able)
