"""Write the record of a track as JSON and read it back.

The JSON is strict: a version, the fields of the record and no other, finite numbers. Floats keep
the seven digits of a float32.
"""

import json
import math
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args, get_origin, get_type_hints

from pipelines.analysis.records import TrackFeatures

VERSION = 1
"""Of the JSON; raised whenever a field changes its meaning, so that no old cache is misread."""


class RecordFormatError(ValueError):
    """The JSON is not a record of this version."""


def to_json(features: TrackFeatures) -> bytes:
    """Write a record.

    Raises:
        RecordFormatError: A number is not finite.
    """
    try:
        content = {"version": VERSION, **_rounded(asdict(features))}
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as fault:
        raise RecordFormatError("the record holds a number that is not finite") from fault


def from_json(data: bytes | str) -> TrackFeatures:
    """Read a record that `to_json` wrote, also before a field with a default was added.

    Raises:
        RecordFormatError: Anything else, down to a missing or surplus field.
    """
    try:
        content = json.loads(data)
    except ValueError as fault:
        raise RecordFormatError("not JSON") from fault
    return from_fields(content)


def from_fields(content: object) -> TrackFeatures:
    """Read a record of which the JSON has been parsed already; raises as `from_json`."""
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise RecordFormatError(f"not a record of version {VERSION}")
    record = {name: value for name, value in content.items() if name != "version"}
    return cast("TrackFeatures", _parse(record, TrackFeatures, "record"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def _parse(value: Any, kind: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _parse_record(value, cast("type[Any]", kind), where)
    if kind == list[float] and _are_floats(value):
        return value
    if get_origin(kind) is list and isinstance(value, list):
        return [_parse(item, get_args(kind)[0], where) for item in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        return {name: _parse(item, get_args(kind)[1], where) for name, item in value.items()}
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (int, str) and type(value) is kind:
        return value
    raise RecordFormatError(f"{where}: {kind} expected")


def _are_floats(value: Any) -> bool:
    return (
        isinstance(value, list)
        and set(map(type, value)) <= {float}
        and all(map(math.isfinite, value))
    )


def _parse_record(value: Any, kind: type[Any], where: str) -> Any:
    names, needed, hints = _shape_of(kind)  # type: ignore[arg-type]  # mypy doubts its hash
    if not isinstance(value, dict) or not needed <= set(value) <= names:
        raise RecordFormatError(f"{where}: exactly the fields {sorted(names)} expected")
    return kind(**{name: _parse(value[name], hints[name], name) for name in value})


@cache
def _shape_of(kind: type[Any]) -> tuple[frozenset[str], frozenset[str], dict[str, Any]]:
    """The fields of a record, those it cannot do without, and their types."""
    names = frozenset(field.name for field in fields(kind))
    needed = frozenset(field.name for field in fields(kind) if field.default_factory is MISSING)
    return names, needed, get_type_hints(kind)
