"""The OpenAPI document no longer contains what client generators stumbled over."""

import re
from collections.abc import Iterator
from typing import Any

from tests.api.described import described_app

DOCUMENT: dict[str, Any] = described_app().openapi()


def nodes(node: Any = DOCUMENT) -> Iterator[dict[str, Any]]:
    """Every object of the document."""
    if isinstance(node, dict):
        yield node
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for item in inner:
        yield from nodes(item)


def operations() -> list[dict[str, Any]]:
    return [one for methods in DOCUMENT["paths"].values() for one in methods.values()]


def test_operations_have_short_names_of_their_own() -> None:
    """`client.add_track()`, not `client.add_track_v1_library_post()`."""
    names = [operation["operationId"] for operation in operations()]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)] == []


def test_bodies_of_links_are_text() -> None:
    """openapi-generator refuses a document in which the body of a link is an object."""
    links = [link for node in nodes() for link in node.get("links", {}).values()]
    bodies = [link["requestBody"] for link in links if "requestBody" in link]
    assert bodies == ["$response.body"] * 2


def test_integers_that_may_be_large_say_so() -> None:
    """The local key has 10^12 credits; clients in Go and Java would use 32 bits."""
    schemas = DOCUMENT["components"]["schemas"]
    fields = schemas["Meta"]["properties"] | schemas["TierLimits"]["properties"]
    for name in ("credits_remaining", "storage_bytes"):
        assert fields[name]["format"] == "int64"
    assert "format" not in schemas["Features"]["properties"]["energy"]


def test_no_field_is_null_alone() -> None:
    """Go has no type for such a field, and the generator for Python gives up."""
    for schema in DOCUMENT["components"]["schemas"].values():
        for field in schema.get("properties", {}).values():
            assert field.get("type") != "null"


def test_bytes_have_no_length_of_text() -> None:
    """The Go client checked the length of a file like that of a string."""
    binary = [node for node in nodes() if node.get("format") == "binary"]
    assert binary
    assert [node for node in binary if "minLength" in node] == []


def test_no_pattern_ends_a_regex_of_ruby() -> None:
    """The Ruby generator puts a backslash before each slash, even after a backslash."""
    patterns = [node["pattern"] for node in nodes() if isinstance(node.get("pattern"), str)]
    assert patterns
    assert [pattern for pattern in patterns if r"\\/" in pattern] == []


def test_every_operation_says_that_serves_proxy_may_answer() -> None:
    """It answers 503 with an error, as to a probe while the service starts."""
    errors = {"#/components/schemas/Error", "#/components/schemas/SpotifyError"}
    for operation in operations():
        schema = operation["responses"]["503"]["content"]["application/json"]["schema"]
        answers = {answer["$ref"] for answer in schema.get("anyOf", [schema])}
        assert answers & errors, operation["operationId"]
