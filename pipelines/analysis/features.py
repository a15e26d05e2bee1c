"""Write a track's record as JSON and read it back.

The JSON is strict: a version, exactly the fields of the record, finite numbers. Floats keep the
seven digits of a float32.
"""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args, get_origin, get_type_hints

from pipelines.analysis.records import TrackFeatures

VERSION = 1
"""Version of the JSON; raised when a field's meaning changes, so that no old cache is misread."""


class RecordFormatError(ValueError):
    """The JSON is not a record of this version."""


Parser = Callable[[Any, str], Any]
"""Reads a value; if it has another type, the error names its place."""


def to_json(features: TrackFeatures) -> bytes:
    """Write a record.

    Raises:
        RecordFormatError: A number is not finite.
    """
    try:
        content = {"version": VERSION, **_plain(features)}
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except ValueError as fault:
        raise RecordFormatError("the record holds a number that is not finite") from fault


def from_json(data: bytes | str) -> TrackFeatures:
    """Read a record that `to_json` wrote, even before a field with a default was added.

    Raises:
        RecordFormatError: It is anything else, even if only one field is missing or extra.
    """
    try:
        content = json.loads(data)
    except ValueError as fault:
        raise RecordFormatError("not JSON") from fault
    return from_fields(content)


def from_fields(content: object) -> TrackFeatures:
    """Read a record from JSON that is already parsed; raises as `from_json`."""
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise RecordFormatError(f"not a record of version {VERSION}")
    record = {name: value for name, value in content.items() if name != "version"}
    return cast("TrackFeatures", _parser(TrackFeatures)(record, "record"))


def _plain(value: Any) -> Any:
    """Return a record as JSON types, its numbers rounded."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return value


@cache
def _parser(kind: Any) -> Parser:
    """Build the parser of a type; types are inspected once, not for every value."""
    if is_dataclass(kind):
        return _record_parser(cast("type[Any]", kind))
    if get_origin(kind) in (list, dict):
        return _list_parser(kind) if get_origin(kind) is list else _dict_parser(kind)

    def parse(value: Any, where: str) -> Any:
        if type(value) is kind and (kind is not float or math.isfinite(value)):
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise RecordFormatError(f"{where}: {kind} expected")

    return parse


def _list_parser(kind: Any) -> Parser:
    parse_item = _parser(get_args(kind)[0])

    def parse(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise RecordFormatError(f"{where}: {kind} expected")
        if kind == list[float] and _are_floats(value):
            return value
        return [parse_item(item, where) for item in value]

    return parse


def _dict_parser(kind: Any) -> Parser:
    parse_item = _parser(get_args(kind)[1])

    def parse(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise RecordFormatError(f"{where}: {kind} expected")
        return {name: parse_item(item, where) for name, item in value.items()}

    return parse


def _record_parser(kind: type[Any]) -> Parser:
    needed = {field.name for field in fields(kind) if field.default_factory is MISSING}
    parsers = {name: _parser(hint) for name, hint in get_type_hints(kind).items()}

    def parse(value: Any, where: str) -> Any:
        if not isinstance(value, dict) or not needed <= value.keys() <= parsers.keys():
            raise RecordFormatError(f"{where}: exactly the fields {sorted(parsers)} expected")
        return kind(**{name: parsers[name](one, name) for name, one in value.items()})

    return parse


def _are_floats(value: list[Any]) -> bool:
    return set(map(type, value)) <= {float} and all(map(math.isfinite, value))
