"""What is known about each checkpoint: its source, its permitted use, what it returns.

A card is the only description of a checkpoint; a checkpoint without a card is never loaded.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, get_args

Role = Literal["beats", "key", "chords", "attributes", "tags", "embedding"]
LicenceClass = Literal["permissive", "copyleft", "noncommercial"]
LicencePolicy = Literal["permissive", "any"]
Format = Literal["none", "safetensors", "torch", "tensorflow", "onnx"]

SHIPPED = "shipped://"
"""The source of weights that are part of afa itself: files under ``models/weights``."""

TOKENIZER = "tokenizer.json"
"""The file of a checkpoint that turns text into token ids."""

_SOURCES = {
    "builtin": r"builtin://",
    "shipped": SHIPPED,
    "pypi": r"pypi://[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+",
    "hub": r"hf://[\w.-]+/[\w.-]+@[0-9a-f]{40}",
    "https": r"https://\S+",
    "file": r"file://\S+",
}


class CardError(ValueError):
    """A card is malformed, or no card fits the request."""


class UnreadableTextError(ValueError):
    """A checkpoint's tokenizer has no tokens for a text."""


@dataclass(frozen=True, slots=True)
class CardFile:
    """A file of the source: its path in the wheel, repository or folder, and its digest in hex.

    The digest is a SHA-256; a small text file of a repository may have its git blob id instead, the
    only digest that a model hub publishes for such files.
    """

    path: str
    sha256: str = ""
    git_sha1: str = ""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One checkpoint.

    Attributes:
        model_id: Stable id; it names the cache folder, and appears in results and cache keys.
            Different weights need a different id.
        role: What it is used for.
        default: Used unless the operator chooses another card for the role.
        network: The class of network that runs it: one of ours (`models.networks`), or one from
            another package (`models.installed`).
        source: ``pypi://name==version``, ``hf://org/repo@commit``, ``https://…``, ``file://…``
            (percent-encoded), ``shipped://`` (part of afa) or ``builtin://`` (no weights).
        format: Format of the weight files; all but safetensors are converted when pulled.
        files: The files to take from the source.
        tensors_sha256: Digest of the converted tensors (see
            `models.checkpoints.cache.weights_digest`), or "" if it is not known yet: then the
            digest noted on pulling counts.
        licence: SPDX id of the weights' licence, and its class; ``commercial_use`` says whether a
            paid service may use them.
        attribution: Whom to credit.
        sample_rate: Hz.
        front_end: The input features, in words.
        window_length: Samples in a window.
        window_hop: Samples between the starts of two windows.
        outputs: Output name → dimension.
        state_key: Where the weights are in a pickled training checkpoint.
        notes: Known limits.
        trained_on: What it was trained on, in words; "" if unknown.
        parts: Cards of the checkpoints whose outputs this one combines. Their ids are fixed, so its
            own id identifies them too.
    """

    model_id: str
    role: Role
    default: bool
    network: str
    source: str
    format: Format
    files: tuple[CardFile, ...]
    tensors_sha256: str
    licence: str
    licence_class: LicenceClass
    commercial_use: bool
    attribution: str
    sample_rate: int
    front_end: str
    window_length: int
    window_hop: int
    outputs: Mapping[str, int]
    state_key: str = ""
    notes: str = ""
    trained_on: str = ""
    parts: tuple["ModelCard", ...] = ()

    @property
    def is_always_here(self) -> bool:
        """Whether it has nothing of its own to pull: no weights, or weights shipped with afa."""
        return self.format == "none" or self.source == SHIPPED

    @property
    def reads_text(self) -> bool:
        """Whether text can be compared with its embeddings: one space, and a tokenizer."""
        has_tokenizer = any(PurePath(file.path).name == TOKENIZER for file in self.files)
        return self.network == "clap-joint" and has_tokenizer


def parse_cards(
    table: Mapping[str, Any], known: Mapping[str, ModelCard] | None = None
) -> dict[str, ModelCard]:
    """Build the cards from the parsed models table (id → fields), in the table's order.

    Args:
        table: The parsed table.
        known: Existing cards, which parts may name.

    Raises:
        CardError: An unknown or missing field, a wrong type, an unpinned source, an id in use, or a
            part without an earlier card.
    """
    known = known or {}
    cards: dict[str, ModelCard] = {}
    for model_id, fields in table.items():
        if not isinstance(model_id, str):
            raise CardError(f"{model_id}: an id is text, as my-net")
        if model_id in known:
            raise CardError(f"{model_id} is the id of another card")
        if not isinstance(fields, Mapping):
            raise CardError(f"{model_id}: a card has fields, such as role, network and source")
        cards[model_id] = _parse_card(model_id, fields, {**known, **cards})
    return cards


def choose_cards(
    cards: Mapping[str, ModelCard],
    licences: LicencePolicy = "any",
    chosen: Mapping[str, str] | None = None,
) -> dict[str, tuple[ModelCard, ...]]:
    """Pick the cards to serve with, by role.

    Args:
        cards: All cards.
        licences: ``permissive`` leaves out copyleft and non-commercial cards; a role without a
            default then falls back to its first permissive card.
        chosen: Role → model id, for roles where the operator overrides the default. For ``tags``,
            an embedding checkpoint that also has tags is accepted.

    Returns:
        Role → its cards; the first is the main one, others (all defaults, too) accompany it.

    Raises:
        CardError: An unknown id, an id of another role, or one that the policy refuses.
    """
    wanted = dict(chosen or {})
    picked: dict[str, tuple[ModelCard, ...]] = {}
    for role in get_args(Role):
        allowed = [
            card
            for card in cards.values()
            if card.role == role and (licences == "any" or card.licence_class == "permissive")
        ]
        if role in wanted:
            picked[role] = (_one(cards, role, wanted.pop(role), licences),)
        elif allowed:
            picked[role] = tuple(c for c in allowed if c.default) or (allowed[0],)
    if wanted:
        raise CardError(f"no such role: {', '.join(sorted(wanted))}")
    return picked


def _one(
    cards: Mapping[str, ModelCard],
    role: str,
    model_id: str,
    licences: LicencePolicy,
) -> ModelCard:
    if model_id not in cards:
        raise CardError(f"no model is called {model_id!r}; see `afa models list`")
    card = cards[model_id]
    if card.role != role and not (role == "tags" and "tags" in card.outputs):
        raise CardError(f"{model_id} is for {card.role}, not for {role}")
    if licences == "permissive" and card.licence_class != "permissive":
        raise CardError(f"{model_id} is {card.licence}, which the policy {licences!r} refuses")
    return card


def _parse_card(
    model_id: str, fields: Mapping[str, Any], known: Mapping[str, ModelCard]
) -> ModelCard:
    rest = dict(fields)

    def take(name: str, kind: type, default: Any = None) -> Any:
        value = rest.pop(name, default)
        if value is None:
            raise CardError(f"{model_id}: {name} is missing; it is a {kind.__name__}")
        if type(value) is not kind:
            raise CardError(f"{model_id}: {name} must be {kind.__name__}, not {value!r}")
        return value

    def choice(name: str, allowed: Any) -> Any:
        options = ", ".join(get_args(allowed))
        if name not in rest:
            raise CardError(f"{model_id}: {name} is missing; it is one of {options}")
        value = take(name, str)
        if value not in get_args(allowed):
            raise CardError(f"{model_id}: {name} must be one of {options}, not {value!r}")
        return value

    window = take("window", dict)
    parts = take("parts", list, [])
    for part in parts:
        if not isinstance(part, str) or part not in known:
            raise CardError(f"{model_id}: no card for {part!r} comes before it")
    card = ModelCard(
        model_id=model_id,
        role=choice("role", Role),
        default=take("default", bool, False),
        network=take("network", str),
        source=take("source", str),
        format=choice("format", Format),
        files=tuple(_parse_file(model_id, file) for file in take("files", list, [])),
        tensors_sha256=take("tensors_sha256", str, ""),
        licence=take("licence", str),
        licence_class=choice("licence_class", LicenceClass),
        commercial_use=take("commercial_use", bool),
        attribution=take("attribution", str),
        sample_rate=take("sample_rate", int),
        front_end=take("front_end", str),
        window_length=window.get("length"),
        window_hop=window.get("hop"),
        outputs=take("outputs", dict),
        state_key=take("state_key", str, ""),
        notes=take("notes", str, ""),
        trained_on=take("trained_on", str, ""),
        parts=tuple(known[part] for part in parts),
    )
    if rest:
        raise CardError(f"{model_id}: unknown field {', '.join(map(str, rest))}")
    _check(card, window)
    return card


def _parse_file(model_id: str, fields: Any) -> CardFile:
    digests = ({"path", "sha256"}, {"path", "git_sha1"})
    if not isinstance(fields, dict) or set(fields) not in digests:
        raise CardError(f"{model_id}: a file has path and sha256, not {fields!r}")
    return CardFile(**{name: str(value) for name, value in fields.items()})


def _check(card: ModelCard, window: Mapping[str, Any]) -> None:
    numbers = [card.sample_rate, card.window_length, card.window_hop, *card.outputs.values()]
    digests = [file.sha256 for file in card.files if not file.git_sha1]
    blobs = [file.git_sha1 for file in card.files if file.git_sha1]
    if card.tensors_sha256:
        digests.append(card.tensors_sha256)
    faults = {
        "the id is not lower-case letters, digits, dots and dashes": not re.fullmatch(
            r"[a-z0-9][a-z0-9.-]*", card.model_id
        ),
        "the window has a length and a hop": set(window) != {"length", "hop"},
        "rate, window and dimensions are positive integers": any(
            type(n) is not int or n < 1 for n in numbers
        ),
        "a sample rate is 4000 to 384000 Hz": not 4_000 <= card.sample_rate <= 384_000,
        "outputs have names": not all(isinstance(name, str) for name in card.outputs),
        "the source is unknown or not pinned (a space is %20)": not any(
            re.fullmatch(pattern, card.source) for pattern in _SOURCES.values()
        ),
        "a sha256 is not 64 hex digits": not all(re.fullmatch("[0-9a-f]{64}", d) for d in digests),
        "a git blob id is not 40 hex digits": not all(
            re.fullmatch("[0-9a-f]{40}", blob) for blob in blobs
        ),
        "a builtin has no files, and everything else has some": (card.format == "none")
        != (not card.files),
        "a builtin has no format, and everything else has one": (card.format == "none")
        != (card.source == "builtin://"),
        "what comes with afa is one safetensors file": card.source == SHIPPED
        and (card.format != "safetensors" or len(card.files) != 1),
    }
    for rule, broken in faults.items():
        if broken:
            raise CardError(f"{card.model_id}: {rule}")
