"""Mood and embedding in one replica, so that a trunk that serves both runs once per track."""

from ray import serve

from pipelines import shared
from pipelines.records import EmbeddingResult, MoodResult
from pipelines.shared import MoodAndEmbeddingStep
from serve_app.deployments.model_server import ModelServer
from serve_app.services.model_exchange import Cards


@serve.deployment
class MoodAndEmbedding(ModelServer[tuple[MoodResult, EmbeddingResult]]):
    """Takes the place of `Mood` and `Embedding`; see `ModelServer`."""

    roles = ("attributes", "tags", "embedding")

    def build(self, cards: Cards) -> MoodAndEmbeddingStep:
        """See `ModelServer`."""
        options = self._options
        return shared.build(
            cards, options.model_dir, self._device, options.max_windows, self._execution
        )
