"""The embedding, and the tags of its trunk, batched; on the GPU when the replica has one."""

from ray import serve

from pipelines import embedding
from pipelines.embedding import EmbeddingStep
from pipelines.records import EmbeddingResult
from serve_app.deployments.model_server import ModelServer
from serve_app.services.model_exchange import Cards


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
