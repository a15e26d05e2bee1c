"""The embedding, and the tags of its trunk, batched; on the GPU when the replica has one."""

from ray import serve

from pipelines.analysis import embedding
from pipelines.analysis.embedding import EmbeddingStep
from pipelines.analysis.records import EmbeddingResult
from serve_app.checkpoints.exchange import Cards
from serve_app.deployments.model_server import ModelServer


@serve.deployment
class Embedding(ModelServer[EmbeddingResult]):
    """See `ModelServer`."""

    roles = ("embedding",)

    def build(self, cards: Cards) -> EmbeddingStep:
        """See `ModelServer`."""
        options = self._options
        return embedding.build(
            cards, options.model_dir, self._device, options.max_windows, self._execution
        )
