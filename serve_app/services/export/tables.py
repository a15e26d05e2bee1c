"""The library as a table: CSV for people, Parquet for programs, M3U for players."""

import csv
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.analysis.records import ATTRIBUTES
from pipelines.analysis.tonality.notes import mode_name, pitch_class
from serve_app.services.export.tracks import ExportTrack

_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()
_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("track_id", "file", "artist", "title", "album"), _TEXT),
        "year": _WHOLE,
        "genres": _TEXT,
        **dict.fromkeys(("duration_s", "tempo", "tempo_confidence"), _REAL),
        "time_signature": _WHOLE,
        **dict.fromkeys(("key", "mode", "camelot"), _TEXT),
        "loudness_lufs": _REAL,
        **dict.fromkeys(ATTRIBUTES, _WHOLE),
        **dict.fromkeys(("tags", "isrc", "mbid", "spotify_id"), _TEXT),
        **dict.fromkeys(("beats", "downbeats"), pa.list_(_REAL)),
    }
)
"""Columns of Parquet; their types do not depend on the tracks of a library."""

ROWS_TOGETHER = 2000
"""Rows of a Parquet file that are in memory at once, some tens of megabytes."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end lines, or for which Mixxx takes a whole playlist for Windows-1252."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def row_of(track: ExportTrack) -> dict[str, Any]:
    """Return a track's row of a table; columns keep this order."""
    who, heard = track.identity, track.features
    return {
        "track_id": track.track.track_id,
        "file": track.file.location,
        "artist": who.artist,
        "title": who.title,
        "album": who.album,
        "year": who.year,
        "genres": "; ".join(who.genres),
        "duration_s": round(heard.duration_s, 3),
        "tempo": round(heard.tempo, 3),
        "tempo_confidence": round(heard.tempo_confidence, 3),
        "time_signature": heard.time_signature,
        "key": pitch_class(heard.key),
        "mode": mode_name(heard.mode),
        "camelot": heard.camelot or None,
        "loudness_lufs": round(heard.loudness_lufs, 2),
        **{name: round(100 * getattr(heard, name)) for name in ATTRIBUTES},
        "tags": "; ".join(tag.tag for tag in heard.mood_tags if tag.score >= 0.1),
        "isrc": who.isrc,
        "mbid": who.mbid,
        "spotify_id": who.spotify_id,
    }


def write_csv(tracks: Iterable[ExportTrack], file: IO[str]) -> None:
    """Write rows under a header; text that a spreadsheet would compute gets an apostrophe."""
    writer = None
    for row in map(row_of, tracks):
        if writer is None:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
        writer.writerow({name: harmless(value) for name, value in row.items()})


def harmless(value: object) -> object:
    """Put an apostrophe before text that a spreadsheet would compute."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA_STARTS)
    return f"'{value}" if is_formula else value


def write_parquet(tracks: Iterable[ExportTrack], file: IO[bytes]) -> None:
    """Write rows, with columns for beats and downbeats added."""
    rows = (
        row_of(one) | {"beats": one.features.beats, "downbeats": one.features.downbeats}
        for one in tracks
    )
    with pq.ParquetWriter(_Counted(file), _SCHEMA) as table:
        while some := list(islice(rows, ROWS_TOGETHER)):
            table.write_table(pa.Table.from_pylist(some, _SCHEMA))


class _Counted:
    """A file that knows its position, which Arrow asks for and a pipe does not know."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._n_written = 0

    def write(self, data: bytes) -> None:
        self._n_written += self._file.write(data)

    def tell(self) -> int:
        return self._n_written

    def flush(self) -> None:
        self._file.flush()


def write_m3u(tracks: Iterable[ExportTrack], file: IO[str]) -> None:
    """Write an extended playlist, UTF-8."""
    file.write("#EXTM3U\n")
    for track in tracks:
        who = track.identity
        name = f"{who.artist} - {who.title}" if who.artist else who.title
        line = " ".join(_CONTROL.sub(" ", name).split())
        file.write(f"#EXTINF:{round(track.features.duration_s)},{line}\n{_line_of(track.path)}\n")


def _line_of(path: Path) -> str:
    """Return a path on one line; as an address if its name has control characters."""
    return path.as_uri() if _CONTROL.search(str(path)) else str(path)
