"""Rhythm, tonality and loudness, batched; on the GPU when the replica has one."""

from ray import serve

from pipelines.analysis import spectral
from pipelines.analysis.records import SpectralResult
from pipelines.analysis.spectral import SpectralStep
from serve_app.checkpoints.exchange import Cards
from serve_app.deployments.model_server import ModelServer


@serve.deployment
class Spectral(ModelServer[SpectralResult]):
    """See `ModelServer`."""

    roles = ("beats", "key")

    def build(self, cards: Cards) -> SpectralStep:
        """See `ModelServer`."""
        chosen = {role: tuple(of_role) for role, of_role in cards.items()}
        return spectral.build(chosen, self._options.model_dir, self._device)
