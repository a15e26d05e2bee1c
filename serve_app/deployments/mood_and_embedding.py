"""Mood and embedding in one replica, so that a trunk that serves both runs once per track."""

from ray import serve

from pipelines.analysis import mood_and_embedding as shared
from pipelines.analysis.mood_and_embedding import MoodAndEmbeddingStep
from pipelines.analysis.records import EmbeddingResult, MoodResult
from serve_app.checkpoints.exchange import Cards
from serve_app.deployments.model_server import ModelServer


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
