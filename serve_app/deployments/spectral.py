"""Rhythm, tonality and loudness, batched; on the GPU when the replica has one."""

from ray import serve

from pipelines import spectral
from pipelines.records import SpectralResult
from serve_app.deployments.model_server import ModelServer, resolve_device
from serve_app.deployments.options import ModelOptions


@serve.deployment
class Spectral(ModelServer[SpectralResult]):
    """Loads the checkpoints in its constructor; see `ModelServer`."""

    def __init__(self, options: ModelOptions) -> None:
        step = spectral.build(options.cards(), options.model_dir, resolve_device(options.device))
        super().__init__(step, options)
