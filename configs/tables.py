"""Reads the YAML tables in this folder."""

from pathlib import Path
from typing import Any, cast

import yaml

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml, which is many times as fast; some builds of PyYAML lack it."""


def load_table(name: str) -> dict[str, Any]:
    """Parse ``configs/<name>.yaml``."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    return cast("dict[str, Any]", yaml.load(text, Loader))  # noqa: S506
