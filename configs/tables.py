"""Read the YAML tables that lie beside this file."""

from pathlib import Path
from typing import Any, cast

import yaml


def load_table(name: str) -> dict[str, Any]:
    """Parse ``configs/<name>.yaml``."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    return cast("dict[str, Any]", yaml.safe_load(text))
