"""Generate what the clients take from the service: `python -m clients.generate`, or `make clients`.

The Python client's types are made from the OpenAPI document; so are the TypeScript client's, by its
own command. The blocking Python client is the asynchronous one with some words replaced.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs.settings import Settings
from configs.tables import load_table
from serve_app.api.asgi import describe
from serve_app.domain.tiers import Tiers

CLIENTS = Path(__file__).parent
PYTHON = CLIENTS / "python" / "afa_client"
TYPESCRIPT = CLIENTS / "typescript"

TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
BLOCKING = {
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "AsyncBaseTransport": "BaseTransport",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "asyncio.sleep": "time.sleep",
    "import asyncio": "import time",
    "asynchronous": "blocking",
    "async def": "def",
    "async with": "with",
    "async for": "for",
    "await ": "",
}

HEAD = '''"""The service's answers; written by `make clients` from its OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base of all answers; fields of a newer service are ignored."""

    model_config = ConfigDict(populate_by_name=True, protected_namespaces=())
'''


def document() -> dict[str, Any]:
    """Return the service's OpenAPI document, with the default public address."""
    url = str(Settings.model_fields["public_url"].default)
    return describe(url, Tiers(load_table("tiers"))).openapi()


def answered(described: dict[str, Any]) -> list[str]:
    """Return the names of the schemas in answers of `/v1`, in the document's order."""
    schemas = described["components"]["schemas"]
    wanted: set[str] = set()
    waiting = [
        response
        for path, operations in described["paths"].items()
        if path.startswith("/v1/")
        for operation in operations.values()
        for response in operation["responses"].values()
    ]
    while waiting:
        found = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(waiting.pop()))
        new = set(found) - wanted
        wanted |= new
        waiting += [schemas[name] for name in new]
    return [name for name in schemas if name in wanted]


def python_type(schema: dict[str, Any]) -> str:
    """Write a schema as a Python type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(python_type(option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return f"Literal[{', '.join(json.dumps(value) for value in values)}]"
    if schema.get("format") == "date-time":
        return "datetime"
    match schema.get("type"):
        case "array":
            return f"list[{python_type(schema['items'])}]"
        case "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {python_type(values) if isinstance(values, dict) else 'Any'}]"
        case str(kind):
            return TYPES[kind]
    return "Any"


def python_field(name: str, schema: dict[str, Any], *, is_required: bool) -> str:
    """Write a field of an answer."""
    kind = python_type(schema)
    settings = []
    if name.startswith("_"):
        settings.append(f"alias={json.dumps(name)}")
    if not is_required:
        default = schema.get("default")
        if default is None and "None" not in kind:
            kind += " | None"
        settings.insert(0, f"default={default!r}")
    if "description" in schema:
        settings.append(f"description={json.dumps(schema['description'], ensure_ascii=False)}")
    value = f" = Field({', '.join(settings)})" if settings else ""
    return f"    {name.lstrip('_')}: {kind}{value}\n"


def python_models(described: dict[str, Any]) -> str:
    """Write the module of the Python client's types."""
    text = HEAD
    for name in answered(described):
        schema = described["components"]["schemas"][name]
        required = schema.get("required", ())
        text += f'\n\nclass {name}(Answer):\n    """{schema["description"]}"""\n\n'
        for field, described_field in schema["properties"].items():
            text += python_field(field, described_field, is_required=field in required)
    return formatted(text)


def blocking_client() -> str:
    """Write the blocking client: the asynchronous one with some words replaced."""
    text = (PYTHON / "async_client.py").read_text(encoding="utf-8")
    for word, other in BLOCKING.items():
        text = text.replace(word, other)
    return formatted(text)


def formatted(text: str) -> str:
    """Return Python code formatted as `make format` would."""
    for command in (["check", "--fix", "--select", "I,F401"], ["format"]):
        # The file name decides which settings apply.
        line = [sys.executable, "-m", "ruff", *command, "-q", "-"]
        line += ["--stdin-filename", str(PYTHON / "any.py")]
        done = subprocess.run(line, input=text, capture_output=True, text=True, check=True)  # noqa: S603
        text = done.stdout
    return text


def files() -> Iterator[tuple[Path, str]]:
    """Yield every generated Python file with its content."""
    yield PYTHON / "models.py", python_models(document())
    yield PYTHON / "client.py", blocking_client()


def typescript_types(target: Path) -> None:
    """Write the TypeScript client's types, with the generator that its package names."""
    with TemporaryDirectory() as folder:
        described = Path(folder) / "openapi.json"
        shapes = document() | {"paths": {}}
        described.write_text(json.dumps(shapes), encoding="utf-8")
        command = ["npm", "--prefix", str(TYPESCRIPT), "run", "--silent", "generate", "--"]
        subprocess.run([*command, str(described), "-o", str(target)], check=True)  # noqa: S603


def main() -> None:
    """Write all generated files."""
    for path, content in files():
        path.write_text(content, encoding="utf-8")
    install = ["npm", "--prefix", str(TYPESCRIPT), "ci", "--no-audit", "--no-fund"]
    subprocess.run(install, check=True)  # noqa: S603
    typescript_types(TYPESCRIPT / "src" / "schema.ts")


if __name__ == "__main__":
    main()
