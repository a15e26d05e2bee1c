"""Every field and parameter of the document says what it means."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from configs.tables import load_table
from serve_app.api.asgi import create_app
from serve_app.domain.tiers import Tiers

SURROUNDINGS = SimpleNamespace(public_url="http://afa.test", tiers=Tiers(load_table("tiers")))
DOCUMENT: dict[str, Any] = create_app(cast("Any", SURROUNDINGS)).openapi()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_field_is_described(name: str) -> None:
    fields = SCHEMAS[name].get("properties", {})
    bare = [field for field, schema in fields.items() if not schema.get("description")]
    assert bare == []


def test_every_parameter_is_described() -> None:
    bare = [
        (method, path, parameter["name"])
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", [])
        if not parameter.get("description")
    ]
    assert bare == []
