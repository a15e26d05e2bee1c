"""Null in a body means that the field is absent, and the OpenAPI document allows it."""

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from serve_app.api.wire.bodies import RequestModel
from serve_app.api.wire.features import BatchRequest
from serve_app.api.wire.library import LibraryAddRequest
from serve_app.api.wire.similar import SimilarRequest
from tests.api.described import described_app


def models(base: type[RequestModel] = RequestModel) -> Iterator[type[RequestModel]]:
    """Yield the models of all bodies and of their parts."""
    for model in base.__subclasses__():
        yield model
        yield from models(model)


def optional(model: type[RequestModel]) -> dict[str, None]:
    """Null for every optional field."""
    fields = model.model_fields.items()
    return {name: None for name, field in fields if not field.is_required()}


def test_every_body_that_is_sent_knows_null() -> None:
    paths = described_app().openapi()["paths"].values()
    asked = [one for ways in paths for one in ways.values() if "requestBody" in one]
    kinds = [one["requestBody"]["content"].get("application/json", {}) for one in asked]
    schemas = [kind["schema"] for kind in kinds if kind]
    refs = {one["$ref"] for schema in schemas for one in schema.get("oneOf", [schema])}
    named = {ref.rsplit("/", 1)[-1] for ref in refs}
    assert "BatchRequest" in named
    assert named <= {model.__name__ for model in models()}


@pytest.mark.parametrize("model", list(models()))
def test_null_is_as_if_it_were_not_there(model: type[RequestModel]) -> None:
    def wrong(sent: dict[str, None]) -> list[object]:
        try:
            model.model_validate(sent)
        except ValidationError as error:
            return [(one["loc"], one["type"]) for one in error.errors()]
        return []

    assert wrong(optional(model)) == wrong({})
    schema = model.model_json_schema()
    may_be_null = [
        name
        for name, field in schema["properties"].items()
        if {"type": "null"} in field.get("anyOf", [])
    ]
    assert may_be_null == list(optional(model))


def test_null_gives_the_default() -> None:
    assert BatchRequest.model_validate({"ids": ["a"], "extended": None}).extended is False
    seeds = [{"id": "a", "weight": None}]
    body = SimilarRequest.model_validate({"seeds": seeds, "n": None, "key": None})
    assert (body.n, body.key, body.seeds[0].weight) == (10, [], 1.0)
    body = LibraryAddRequest.model_validate({"asset_id": "afa_1", "ids": None, "title": None})
    assert (body.ids, body.title) == ([], None)
