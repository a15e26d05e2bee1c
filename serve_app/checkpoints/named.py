"""The available checkpoints, as callers see them, and the embeddings that a request may name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from models.checkpoints.cards import CardError, LicencePolicy, ModelCard, choose_cards
from models.checkpoints.stored import is_stored, stored_bytes
from serve_app.domain.errors import BadRequestError

EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A checkpoint that this service knows.

    Attributes:
        in_use: Whether it answers if no other is named.
        may_be_named: Whether a request may name it for its embedding.
    """

    card: ModelCard
    in_use: bool
    may_be_named: bool


class NamedModels:
    """Knows the cards, the choice, and the memory for further named models.

    Args:
        cards: Returns all cards by id.
        in_use: Returns role to the ids in use, joined by ``+``.
        model_dir: Where checkpoints are stored.
        licences: See `models.checkpoints.cards.choose_cards`.
        room_bytes: Bytes of weights that named models may have; 0 if none may be named.
    """

    def __init__(
        self,
        cards: Callable[[], Mapping[str, ModelCard]],
        in_use: Callable[[], Mapping[str, str]],
        model_dir: Path,
        licences: LicencePolicy,
        room_bytes: int,
    ) -> None:
        self._cards = cards
        self._in_use = in_use
        self._model_dir = model_dir
        self._licences = licences
        self._room_bytes = room_bytes

    def all(self) -> Iterator[KnownModel]:
        """Yield every checkpoint that has a card."""
        chosen = {one for ids in self._in_use().values() for one in ids.split("+")}
        for card in self._cards().values():
            yield KnownModel(card, card.model_id in chosen, self._may_be_named(card))

    def embedding(self) -> str:
        """Return the id of the embedding in use."""
        return self._in_use().get(EMBEDDING, "")

    def check(self, model_id: str) -> None:
        """Refuse an id that is not an embedding a request may name.

        Raises:
            BadRequestError: It is not one, or is unavailable here; the message lists valid ones.
        """
        able = [known.card.model_id for known in self.all() if known.may_be_named]
        if model_id not in able:
            is_known = model_id in self._cards()
            what = "is not available here" if is_known else "is not a model that this service knows"
            raise BadRequestError(
                f"embedding_model: {model_id[:80]!r} {what}; you may name: "
                f"{', '.join(able) or 'none'} (see GET /v1/models)"
            )

    def text_model(self, model_id: str | None) -> str:
        """Return the id of the embedding whose vectors words are compared with.

        Raises:
            BadRequestError: The requested one, or the one in use, does not read text.
        """
        wanted = model_id or self.embedding()
        able = [
            card.model_id
            for card in self._cards().values()
            if card.reads_text and self._is_usable(card)
        ]
        if wanted in able:
            return wanted
        what_to_do = (
            f"these do: {', '.join(able)}; name one as `model`"
            if able
            else "none here does; the operator can add a CLAP checkpoint with its tokenizer, "
            "and give the library its vectors (`afa models embed`)"
        )
        raise BadRequestError(f"text: the model {wanted[:80]!r} reads no words; {what_to_do}")

    def _may_be_named(self, card: ModelCard) -> bool:
        if card.model_id == self.embedding():
            return True
        fits = stored_bytes(card, self._model_dir) <= self._room_bytes
        return self._room_bytes > 0 and fits and self._is_usable(card)

    def _is_usable(self, card: ModelCard) -> bool:
        """Whether it is an embedding that the licence policy allows and this machine has."""
        try:
            choose_cards(self._cards(), self._licences, {EMBEDDING: card.model_id})
        except CardError:
            return False
        return is_stored(card, self._model_dir)
