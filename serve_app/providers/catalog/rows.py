"""The catalog's Parquet columns, and the check that turns one row into a `TrackIdentity`.

Invariant: what `parse_row` accepts is normalised, so that the index never has two spellings of one
identifier; what it refuses comes with a reason that a person can act on.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from pipelines.analysis.tonality.notes import MODES, PITCH_CLASSES
from serve_app.domain.identity import ID_FIELDS, TrackIdentity
from serve_app.domain.track_ids import InvalidTrackIdError, track_id_of
from serve_app.providers.web.url_guard import InvalidUrlError, UrlGuard

SCHEMA = pa.schema(
    [
        ("artist", pa.string()),
        ("title", pa.string()),
        ("mbid", pa.string()),
        ("isrc", pa.string()),
        ("spotify_id", pa.string()),
        ("apple_id", pa.string()),
        ("deezer_id", pa.string()),
        ("youtube_id", pa.string()),
        ("album", pa.string()),
        ("year", pa.int32()),
        ("label", pa.string()),
        ("genres", pa.list_(pa.string())),
        ("duration_s", pa.float64()),
        ("audio_url", pa.string()),
        ("artwork_url", pa.string()),
        ("tempo", pa.float64()),
        ("key", pa.int8()),
        ("mode", pa.int8()),
        ("beats", pa.list_(pa.float64())),
        ("downbeats", pa.list_(pa.float64())),
        ("is_verified", pa.bool_()),
        ("source", pa.string()),
    ]
)
"""Every column may be missing or null; a row needs one identifier, or an artist and a title."""

MAX_TEXT = 500
MAX_BEATS = 20_000
TEMPO_RANGE = (20.0, 400.0)
YEAR_RANGE = (1000, 2999)
MAX_DURATION_S = 24 * 3600.0
ID_TYPES = (str, int)


class RowError(ValueError):
    """A row that cannot be imported; ``column`` is "" if the whole row is at fault."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column = column
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.column}: {self.problem}" if self.column else self.problem


@dataclass(frozen=True, slots=True)
class AudioPolicy:
    """Which audio the rows of a file may name.

    Attributes:
        guard: Decides which web addresses are allowed.
        anywhere: Whether files outside the catalog file's folder are allowed; for trusted input.
    """

    guard: UrlGuard = field(default_factory=UrlGuard)
    anywhere: bool = False


DEFAULT_AUDIO = AudioPolicy()


def parse_row(
    row: Mapping[str, object], folder: Path, audio: AudioPolicy = DEFAULT_AUDIO
) -> TrackIdentity:
    """Check and normalise one row.

    Args:
        row: Column name to value, as returned by pyarrow; unknown columns are ignored.
        folder: The folder that local files must be in; a relative ``audio_url`` starts there.
        audio: Which audio the row may name.

    Raises:
        RowError: The row breaks a rule; the first broken one is named.
    """
    values = {
        name: _PARSERS[name](name, value)
        for name, value in row.items()
        if (value or value == 0) and name in _PARSERS
    }
    if "audio_url" in values:
        values["audio_url"] = _audio_url(str(values["audio_url"]), folder, audio)
    identity = TrackIdentity(**values)  # type: ignore[arg-type]  # each parser gives its field's type
    if not (identity.artist and identity.title) and not any(True for _ in identity.ids()):
        raise RowError("", "neither an identifier nor artist and title")
    if not set(identity.downbeats).issubset(identity.beats):
        raise RowError("downbeats", "has times that are not in beats")
    if (identity.key is None) != (identity.mode is None):
        raise RowError("key", "key and mode must be given together")
    return identity


def table_of(identities: Sequence[TrackIdentity]) -> pa.Table:
    """Return the Parquet rows of identities; the inverse of `parse_row`."""
    columns = [pa.array(_column(identities, column.name), column.type) for column in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _column(identities: Sequence[TrackIdentity], name: str) -> Iterable[object]:
    values = map(attrgetter(name), identities)
    return [value or None for value in values] if name in _MAY_BE_EMPTY else list(values)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise RowError(name, "must be text")
    text = " ".join(value.split())
    if len(text) > MAX_TEXT:
        raise RowError(name, f"longer than {MAX_TEXT} characters")
    return text


def _identifier(name: str, value: object) -> str:
    number = _as_whole(value)
    if isinstance(number, bool) or not isinstance(number, ID_TYPES):
        raise RowError(name, "must be text or a whole number")
    try:
        return track_id_of(_PLATFORMS[name], str(number).strip()).value
    except InvalidTrackIdError as error:
        raise RowError(name, "is not a valid identifier") from error


def _number(low: float, high: float) -> Callable[[str, object], float]:
    def parse(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RowError(name, "must be a number")
        if not (math.isfinite(value) and low <= value <= high):
            raise RowError(name, f"must be between {low:g} and {high:g}")
        return float(value)

    return parse


def _whole(low: int, high: int, names: tuple[str, ...] = ()) -> Callable[[str, object], int]:
    def parse(name: str, value: object) -> int:
        if isinstance(value, str) and value in names:
            return names.index(value)
        number = _as_whole(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise RowError(name, "must be a whole number" + (" or a name" if names else ""))
        if not low <= number <= high:
            raise RowError(name, f"must be between {low} and {high}")
        return number

    return parse


def _as_whole(value: object) -> object:
    """Return a whole number as int: in a column with gaps, pandas makes all numbers floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _genres(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise RowError(name, "must be a list of text")
    return tuple(_text(name, genre) for genre in value if genre)


def _times(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > MAX_BEATS:
        raise RowError(name, f"must be a list of at most {MAX_BEATS} times")
    parse = _number(0.0, MAX_DURATION_S)
    times = tuple(parse(name, time) for time in value)
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise RowError(name, "must ascend")
    return times


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise RowError(name, "must be true or false")
    return value


def _web_address(name: str, value: object) -> str:
    address = _text(name, value)
    if urlsplit(address).scheme not in ("http", "https"):
        raise RowError(name, "must be an http or https address")
    return address


def _audio_url(address: str, folder: Path, audio: AudioPolicy) -> str:
    """Keep a web address; turn a local file's path into an absolute ``file://`` address."""
    scheme = urlsplit(address).scheme
    if scheme in ("http", "https"):
        try:
            audio.guard.check(address)
        except InvalidUrlError as error:
            raise RowError("audio_url", str(error)) from error
        return address
    if scheme == "file":
        path = Path(address.removeprefix("file://"))
    elif not scheme:
        path = folder / address
    else:
        raise RowError("audio_url", "must be an http, https or file address, or a path")
    if not (audio.anywhere or path.resolve().is_relative_to(folder.resolve())):
        raise RowError(
            "audio_url", "is outside the folder of the catalog file; --audio-anywhere allows it"
        )
    if not path.is_file():
        raise RowError("audio_url", "names a file that does not exist")
    return f"file://{path.resolve()}"


_MAY_BE_EMPTY = {one.name for one in fields(TrackIdentity) if one.default in ("", ())}
_PLATFORMS = {name: platform for platform, name in ID_FIELDS.items()}
_PARSERS: dict[str, Callable[[str, object], object]] = {
    "artist": _text,
    "title": _text,
    **dict.fromkeys(_PLATFORMS, _identifier),
    "album": _text,
    "year": _whole(*YEAR_RANGE),
    "label": _text,
    "genres": _genres,
    "duration_s": _number(0.0, MAX_DURATION_S),
    "audio_url": _text,
    "artwork_url": _web_address,
    "tempo": _number(*TEMPO_RANGE),
    "key": _whole(0, 11, PITCH_CLASSES),
    "mode": _whole(0, 1, MODES),
    "beats": _times,
    "downbeats": _times,
    "is_verified": _flag,
    "source": _text,
}
