"""Modules named in strings, pages and commands exist: a move must leave no old name behind."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks import registry

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("benchmarks", "configs", "models", "pipelines", "serve_app", "tests")
NAME = rf"(?:{'|'.join(PACKAGES)})(?:[.:]\w+)+"
QUOTED = re.compile(rf"[\"'`]({NAME})[\"'`]")
STARTED = re.compile(rf"python -m ({NAME})")
KINDS = {".py", ".md", ".yaml", ".toml"}
SUFFIXES = {"yaml", "json", "md", "txt", "py"}
"""A name that ends like this is a file's."""


def files() -> list[Path]:
    """All files that are written by hand."""
    folders = [REPOSITORY / name for name in (*PACKAGES, "docs", ".github")]
    found = [*REPOSITORY.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    return [path for path in found if path.suffix in KINDS or path.name == "Makefile"]


def named(text: str) -> Iterator[str]:
    """Yield every dotted name of ours in a text, as a string, in backticks or after -m."""
    for pattern in (QUOTED, STARTED):
        for name in pattern.findall(text):
            if name.rpartition(".")[2] not in SUFFIXES:
                yield name.replace(":", ".")


@cache
def defined(module: Path) -> frozenset[str]:
    """Return the names that a module binds at its top, without importing it."""
    names: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        else:
            targets = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            names |= {part.id for part in targets if isinstance(part.ctx, ast.Store)}
    return frozenset(names)


def exists(name: str) -> bool:
    """Return whether a dotted name leads to a module, or to something that a module defines."""
    path = REPOSITORY
    parts = name.split(".")
    for i, part in enumerate(parts):
        if (path / part).is_dir():
            path /= part
        elif (module := path / f"{part}.py").is_file():
            return i + 1 == len(parts) or parts[i + 1] in defined(module)
        else:
            package = path / "__init__.py"
            return package.is_file() and part in defined(package)
    return True


def test_every_name_in_a_string_leads_somewhere() -> None:
    lost = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in files()
        for name in named(path.read_text(encoding="utf-8"))
        if not exists(name)
    }
    assert lost == set()


@pytest.mark.parametrize("module", registry.MODULES.values())
def test_every_benchmark_is_a_module_with_a_name_and_a_run(module: str) -> None:
    assert {"NAME", "run"} <= defined(REPOSITORY / f"{module.replace('.', '/')}.py")


def test_names_are_noticed() -> None:
    text = 'see `{0}.app` and "{0}.app:build", run python -m {0}.local.redis; "{0}.yaml"'
    names = list(named(text.format("serve_app")))
    below = [name.removeprefix("serve_app.") for name in names]
    assert below == ["app", "app.build", "local.redis"]
    assert [exists(name) for name in names] == [True, False, False]
    assert exists("serve_app.app.build_app")
    assert exists("tests.soak.worker")
