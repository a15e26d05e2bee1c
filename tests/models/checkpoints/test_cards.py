import re
from typing import Any

import pytest

from models.checkpoints.cards import CardError, ModelCard, choose_cards, parse_cards

SHA = "0" * 63 + "f"


def card(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "role": "tags",
        "network": "musicnn",
        "source": "pypi://thing==1.0",
        "format": "onnx",
        "files": [{"path": "a/b.onnx", "sha256": SHA}],
        "licence": "MIT",
        "licence_class": "permissive",
        "commercial_use": True,
        "attribution": "someone",
        "sample_rate": 16_000,
        "front_end": "mel",
        "window": {"length": 100, "hop": 50},
        "outputs": {"tags": 3},
    }
    fields.update(changes)
    return {name: value for name, value in fields.items() if value is not None}


def parsed(**changes: Any) -> ModelCard:
    return parse_cards({"thing": card(**changes)})["thing"]


def test_a_card_says_what_the_table_says() -> None:
    it = parsed(default=True, notes="n")
    assert (it.model_id, it.role, it.default) == ("thing", "tags", True)
    assert (it.window_length, it.window_hop, it.outputs) == (100, 50, {"tags": 3})
    assert (it.files[0].path, it.files[0].sha256, it.notes) == ("a/b.onnx", SHA, "n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"licence": None}, "licence is missing; it is a str"),
        ({"colour": "red"}, "unknown field colour"),
        ({"parts": [{"a": 1}]}, "no card for {'a': 1} comes before it"),
        ({"outputs": {1: 3}}, "outputs have names"),
        ({"role": "smell"}, "role must be one of"),
        ({"licence_class": "free"}, "licence_class must be one of"),
        ({"sample_rate": "16000"}, "sample_rate must be int"),
        ({"sample_rate": 0}, "positive integers"),
        ({"sample_rate": 1_000_000}, "4000 to 384000 Hz"),
        ({"default": 1}, "default must be bool"),
        ({"window": {"length": 100}}, "a length and a hop"),
        ({"window": {"length": 100, "hop": True}}, "positive integers"),
        ({"outputs": {"tags": 1.5}}, "positive integers"),
        ({"source": "pypi://thing"}, "not pinned"),
        ({"source": "hf://org/repo@main"}, "not pinned"),
        ({"source": "ftp://x"}, "not pinned"),
        ({"files": [{"path": "a", "sha256": "12"}]}, "64 hex digits"),
        ({"files": [{"path": "a"}]}, "a file has path and sha256"),
        ({"tensors_sha256": "x"}, "64 hex digits"),
        ({"files": []}, "everything else has some"),
        ({"source": "builtin://"}, "everything else has one"),
        ({"source": "shipped://"}, "one safetensors file"),
    ],
)
def test_a_malformed_card_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CardError, match=re.escape(message)):
        parsed(**changes)


def test_parts_are_cards_that_stand_before() -> None:
    whole = card(parts=["one"])
    assert parse_cards({"one": card(), "whole": whole})["whole"].parts[0].model_id == "one"
    with pytest.raises(CardError, match="whole: no card for 'one' comes before it"):
        parse_cards({"whole": whole, "one": card()})


def test_an_id_that_is_no_folder_name_is_refused() -> None:
    with pytest.raises(CardError, match="the id"):
        parse_cards({"../thing": card()})
    with pytest.raises(CardError, match="unknown field 1, colour"):
        parse_cards({"thing": card() | {1: 2, "colour": "red"}})


def test_the_shipped_cards_are_complete(cards: dict[str, ModelCard]) -> None:
    chosen = choose_cards(cards)
    assert {role: tuple(c.model_id for c in group) for role, group in chosen.items()} == {
        "beats": ("afa-beats-3",),
        "key": ("hpcp", "skey", "afa-key-2"),
        "chords": ("afa-chords-2",),
        "attributes": ("vibenet",),
        "tags": ("musicnn-mtt",),
        "embedding": ("afa-embed-1",),
    }
    assert chosen["embedding"][0].parts == (cards["musicnn-msd-768"], cards["efficientat-mn04"])
    for it in cards.values():
        assert it.tensors_sha256 or it.format == "none" or it.source.startswith("hf://")
        assert it.commercial_use == (it.licence_class != "noncommercial")
        assert all(part.licence_class in {"permissive", it.licence_class} for part in it.parts)


def test_the_permissive_policy_falls_back_within_the_role(cards: dict[str, ModelCard]) -> None:
    chosen = choose_cards(cards, "permissive")
    assert [c.model_id for c in chosen["attributes"]] == ["musicnn-attributes"]
    assert all(c.licence_class == "permissive" for group in chosen.values() for c in group)
    with pytest.raises(CardError, match="policy 'permissive' refuses"):
        choose_cards(cards, "permissive", {"attributes": "vibenet"})


def test_the_operator_chooses_by_role(cards: dict[str, ModelCard]) -> None:
    assert [c.model_id for c in choose_cards(cards, "any", {"key": "hpcp"})["key"]] == ["hpcp"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"tags": "nothing"}, "no model is called 'nothing'"),
        ({"tags": "vibenet"}, "is for attributes, not for tags"),
        ({"smell": "vibenet"}, "no such role: smell"),
    ],
)
def test_a_wrong_choice_says_what_is_wrong(
    cards: dict[str, ModelCard], chosen: dict[str, str], message: str
) -> None:
    with pytest.raises(CardError, match=message):
        choose_cards(cards, "any", chosen)
