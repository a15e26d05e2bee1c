"""The embedding, and the tags of its trunk, batched; on the GPU when the replica has one."""

from ray import serve

from pipelines import embedding
from pipelines.records import EmbeddingResult
from serve_app.deployments.model_server import ModelServer, resolve_device
from serve_app.deployments.options import ModelOptions


@serve.deployment
class Embedding(ModelServer[EmbeddingResult]):
    """Loads the checkpoints in its constructor; see `ModelServer`."""

    def __init__(self, options: ModelOptions) -> None:
        step = embedding.build(
            options.cards(),
            options.model_dir,
            resolve_device(options.device),
            max_windows=options.max_windows,
        )
        super().__init__(step, options)
