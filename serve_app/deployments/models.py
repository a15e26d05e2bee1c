"""The model deployments: batched, and on the GPU when the replica has one.

Each names the roles whose checkpoints it runs, and builds its step from their cards; `ModelServer`
does the rest. Serve files refer to them by their class names.
"""

from typing import TypeVar, cast

from ray import serve

from models.rhythm.tempo import TempoRange
from pipelines.analysis import embedding, mood, mood_and_embedding, spectral
from pipelines.analysis.embedding import EmbeddingStep
from pipelines.analysis.mood import MoodStep
from pipelines.analysis.mood_and_embedding import MoodAndEmbeddingStep
from pipelines.analysis.records import EmbeddingResult, MoodResult, SpectralResult
from pipelines.analysis.spectral import SpectralStep
from pipelines.analysis.text import Texts
from pipelines.audio.waveform import Waveform
from serve_app.checkpoints.exchange import Cards
from serve_app.composition.options import ModelOptions, StoreOptions
from serve_app.deployments.model_server import Answer, ModelServer, Pcm

R = TypeVar("R")


@serve.deployment
class Spectral(ModelServer[SpectralResult]):
    """Rhythm, tonality, structure and loudness."""

    roles = ("beats", "key", "chords")

    def build(self, cards: Cards) -> SpectralStep:
        """See `ModelServer`."""
        chosen = {role: tuple(of_role) for role, of_role in cards.items()}
        return spectral.build(chosen, self._options.model_dir, self._device)

    async def analyse_within(
        self, pcm: list[Pcm], sample_rate: int, tempo_range: TempoRange
    ) -> Answer[SpectralResult]:
        """Analyse a track with a tempo in the given range; the rest is as in `analyse`."""
        self._check_device()
        samples = await pcm[0]
        current, models = self._exchange.current, self._exchange.serving
        step = cast("SpectralStep", current.step).within(tempo_range)
        return Answer(await current.run(Waveform(samples, sample_rate), step), models)


@serve.deployment
class Mood(ModelServer[MoodResult]):
    """Attributes and mood tags."""

    roles = ("attributes", "tags")

    def build(self, cards: Cards) -> MoodStep:
        """See `ModelServer`."""
        options = self._options
        return mood.build(
            cards, options.model_dir, self._device, options.max_windows, self._execution
        )


class EmbeddingServer(ModelServer[R]):
    """Also embeds text, if a checkpoint has text and audio in one space."""

    async def __init__(  # type: ignore[misc]  # as `ModelServer`
        self, options: ModelOptions, stores: StoreOptions
    ) -> None:
        await super().__init__(options, stores)
        self._texts = Texts(options.model_dir)

    async def embed_text(self, text: str, model: str) -> list[float]:
        """See `TextBackend`.

        Raises:
            CardError: There is no such embedding model, or none may be named here.
            CheckpointError: It is not on this machine, or not what its card says.
            UnreadableTextError: It has no tokens for the text.
        """
        (card,) = self._options.cards({"embedding": model})["embedding"]
        return await self._texts.embed(text, card)


@serve.deployment
class Embedding(EmbeddingServer[EmbeddingResult]):
    """The embedding and the tags of its trunk."""

    roles = ("embedding",)

    def build(self, cards: Cards) -> EmbeddingStep:
        """See `ModelServer`."""
        options = self._options
        return embedding.build(
            cards, options.model_dir, self._device, options.max_windows, self._execution
        )


@serve.deployment
class MoodAndEmbedding(EmbeddingServer[tuple[MoodResult, EmbeddingResult]]):
    """Replaces `Mood` and `Embedding`, so that a shared trunk runs once per track."""

    roles = ("attributes", "tags", "embedding")

    def build(self, cards: Cards) -> MoodAndEmbeddingStep:
        """See `ModelServer`."""
        options = self._options
        return mood_and_embedding.build(
            cards, options.model_dir, self._device, options.max_windows, self._execution
        )
