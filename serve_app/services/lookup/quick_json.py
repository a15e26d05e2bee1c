"""Tempo and key as JSON, for the cache."""

import json
from dataclasses import asdict

from pipelines.analysis.records import QuickFeatures


def quick_to_json(features: QuickFeatures) -> bytes:
    """Write a record."""
    return json.dumps(asdict(features), allow_nan=False).encode()


def quick_from_json(data: bytes) -> QuickFeatures | None:
    """Read a record; None if it is of another version."""
    try:
        return QuickFeatures(**json.loads(data))
    except (TypeError, ValueError):
        return None
