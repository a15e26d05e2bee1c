"""GPU machines are bare: code that computes must import without the server's dependencies."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRESENT = {"torch", "torchaudio", "transformers", "numpy", "safetensors", "models", "pipelines"}
PRESENT |= {"tokenizers"}  # comes with transformers
MODULES = sorted(
    path
    for folder in ("models", "pipelines")
    for path in (ROOT / folder).rglob("*.py")
    if "training" not in path.parts
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_nothing_else_is_imported_with_the_module(path: Path) -> None:
    roots = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.split(".")[0])
    assert roots <= PRESENT | sys.stdlib_module_names


def test_the_modules_are_found() -> None:
    assert len(MODULES) > 60
