"""Every field and parameter of the document says what it means."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.api.described import described_app

DOCUMENT: dict[str, Any] = described_app().openapi()
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


def test_the_licence_is_the_project_s() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert DOCUMENT["info"]["license"]["identifier"] == project["license"]
