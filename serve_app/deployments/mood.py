"""Attributes and mood tags, batched; on the GPU when the replica has one."""

from ray import serve

from pipelines.analysis import mood
from pipelines.analysis.mood import MoodStep
from pipelines.analysis.records import MoodResult
from serve_app.checkpoints.exchange import Cards
from serve_app.deployments.model_server import ModelServer


@serve.deployment
class Mood(ModelServer[MoodResult]):
    """See `ModelServer`."""

    roles = ("attributes", "tags")

    def build(self, cards: Cards) -> MoodStep:
        """See `ModelServer`."""
        options = self._options
        return mood.build(
            cards, options.model_dir, self._device, options.max_windows, self._execution
        )
