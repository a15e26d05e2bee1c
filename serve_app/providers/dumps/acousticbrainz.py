"""AcousticBrainz dumps → catalog Parquet: tempo and key by MBID.

Two published forms are read. The feature dump is three ``.tar.zst`` archives of one CSV each, of
which ``rhythm`` and ``tonal`` are used: one row per submission, all values text, empty when
missing. The low-level dump's archives hold one JSON file per submission,
``…/<2 hex>/<1 hex>/<mbid>-<n>.json``. Several submissions of one recording disagree: the median
tempo and the commonest key are taken. Tempo may still be half or double, so rows are not verified.

References:
    https://acousticbrainz.org/download (2022-07-06). The data is CC0.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from pipelines.analysis.notes import MODES, PITCH_CLASSES
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import Platform
from serve_app.providers.catalog.build import write_parquet
from serve_app.providers.catalog.rows import MAX_DURATION_S, MAX_TEXT, TEMPO_RANGE
from serve_app.providers.dumps.files import DumpFormatError, DumpReport, open_members
from serve_app.providers.web.wire import known_id

SOURCE = "acousticbrainz"
KEYS = {name: number for number, name in enumerate(PITCH_CLASSES)} | {
    "Db": 1, "Eb": 3, "Gb": 6, "Ab": 8, "Bb": 10,
}  # fmt: skip
_JSON_NAME = re.compile(
    r"(?:.*/)?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})-[0-9]+\.json"
)


def import_features(rhythm: Path, tonal: Path, parquet: Path) -> DumpReport:
    """Convert the feature dump's ``rhythm`` and ``tonal`` archives (or their bare CSV files).

    The whole dump of 29 million rows takes about 6 GB of memory.

    Raises:
        DumpFormatError: An archive holds no such CSV; nothing is written.
    """
    report = DumpReport()
    tempos = _median_tempos(_read_csv(rhythm, ["mbid", "bpm"], report), report)
    keys = _commonest_keys(_read_csv(tonal, ["mbid", "key_key", "key_scale"], report), report)
    write_parquet(_joined(tempos, keys), parquet)
    return report


def import_lowlevel(dump: Path, parquet: Path) -> DumpReport:
    """Convert one archive of the low-level JSON dump, with the names its tags carry.

    Raises:
        DumpFormatError: Not such an archive; nothing is written.
    """
    report = DumpReport()
    tracks: dict[str, _Submissions] = {}
    for name, _, file in open_members(dump):
        match = _JSON_NAME.fullmatch(name)
        if match is None:
            continue
        report.n_items += 1
        submission = tracks.setdefault(match[1], _Submissions())
        if not submission.add(file.read()):
            report.reject(dump, "not a low-level document")
            continue
        report.n_used += 1
    if report.n_items == 0:
        raise DumpFormatError(f"{dump}: holds no <mbid>-<n>.json")
    write_parquet((one.identity(mbid) for mbid, one in tracks.items() if one.n_used), parquet)
    return report


def _read_csv(path: Path, columns: list[str], report: DumpReport) -> pa.Table:
    """The wanted columns, sorted by MBID; all text."""
    if path.suffix == ".csv":
        with path.open("rb") as bare:
            table = _parse_csv(path, bare, columns)
    else:
        for name, _, file in open_members(path):
            if name.endswith(".csv"):
                table = _parse_csv(path, file, columns)
                break
        else:
            raise DumpFormatError(f"{path}: holds no CSV")
    report.n_items += table.num_rows
    return table


def _parse_csv(path: Path, file: IO[bytes], columns: list[str]) -> pa.Table:
    types = dict.fromkeys(columns, pa.string())
    options = csv.ConvertOptions(include_columns=columns, column_types=types)
    try:
        return csv.read_csv(file, convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise DumpFormatError(f"{path}: not a CSV with {', '.join(columns)}") from error


def _median_tempos(table: pa.Table, report: DumpReport) -> dict[str, float]:
    """The lower median of each recording's plausible tempos, by MBID."""
    text = pc.if_else(pc.match_substring_regex(table["bpm"], r"^[0-9.eE+-]+$"), table["bpm"], None)
    bpm = text.cast(pa.float64())
    is_good = pc.and_(pc.greater_equal(bpm, TEMPO_RANGE[0]), pc.less_equal(bpm, TEMPO_RANGE[1]))
    kept = pa.table({"mbid": table["mbid"], "bpm": bpm}).filter(
        is_good, null_selection_behavior="drop"
    )
    _count(report, kept.num_rows, table.num_rows, "no plausible bpm")
    kept = kept.sort_by([("mbid", "ascending"), ("bpm", "ascending")])
    starts, sizes = _runs(kept["mbid"])
    middles = starts + (sizes - 1) // 2
    return dict(
        zip(
            kept["mbid"].take(pa.array(starts)).to_pylist(),
            kept["bpm"].take(pa.array(middles)).to_pylist(),
            strict=True,
        )
    )


def _commonest_keys(table: pa.Table, report: DumpReport) -> dict[str, tuple[int, int]]:
    """The commonest (key, mode) of each recording, by MBID; the lower one of equals."""
    names = pa.array(list(KEYS))
    numbers = pa.array(list(KEYS.values()), pa.int64())
    keys = numbers.take(pc.index_in(table["key_key"].combine_chunks(), names))
    modes = pc.index_in(table["key_scale"].combine_chunks(), pa.array(MODES))
    codes = pc.add(pc.multiply(keys, 2), modes.cast(pa.int64()))
    all_rows = pa.table({"mbid": table["mbid"], "code": codes})
    kept = all_rows.filter(pc.is_valid(all_rows["code"]))
    _count(report, kept.num_rows, table.num_rows, "no known key")
    votes = kept.group_by(["mbid", "code"]).aggregate([("code", "count")])
    votes = votes.sort_by(
        [("mbid", "ascending"), ("code_count", "descending"), ("code", "ascending")]
    )
    starts, _ = _runs(votes["mbid"])
    first = votes.take(pa.array(starts))
    return {
        mbid: divmod(code, 2)
        for mbid, code in zip(first["mbid"].to_pylist(), first["code"].to_pylist(), strict=True)
    }


def _count(report: DumpReport, n_kept: int, n_all: int, reason: str) -> None:
    report.n_used += n_kept
    if n_all > n_kept:
        report.reasons[reason] += n_all - n_kept


def _runs(ordered: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each run of equal values starts in a sorted column, and how long it is."""
    if len(ordered) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    column = ordered.combine_chunks()
    differs = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(differs) + 1]).astype(np.int64)
    return starts, np.diff(np.append(starts, len(column)))


def _joined(tempos: dict[str, float], keys: dict[str, tuple[int, int]]) -> Iterator[TrackIdentity]:
    for mbid in sorted(tempos.keys() | keys.keys()):
        normal = known_id(Platform.MBID, mbid)
        if normal is None:
            continue
        key, mode = keys.get(mbid, (None, None))
        yield TrackIdentity(mbid=normal, tempo=tempos.get(mbid), key=key, mode=mode, source=SOURCE)


@dataclass(slots=True)
class _Submissions:
    """What all submissions of one recording say."""

    tempos: list[float] = field(default_factory=list)
    keys: Counter[tuple[int, int]] = field(default_factory=Counter)
    names: TrackIdentity = field(default_factory=TrackIdentity)
    n_used: int = 0

    def add(self, body: bytes) -> bool:
        """Take in one document; False when it is none."""
        try:
            found = identity_in(json.loads(body))
        except ValueError:
            return False
        if found is None:
            return False
        if found.tempo is not None:
            self.tempos.append(found.tempo)
        if found.key is not None and found.mode is not None:
            self.keys[found.key, found.mode] += 1
        names = replace(found, mbid=None, tempo=None, key=None, mode=None)
        self.names = self.names.filled_from(names)
        self.n_used += 1
        return True

    def identity(self, mbid: str) -> TrackIdentity:
        """The recording as all of them together describe it."""
        # Counter keeps the order of insertion among equals; the lower key makes it deterministic.
        best = min(self.keys.items(), key=lambda kv: (-kv[1], kv[0]), default=((None, None), 0))
        return replace(
            self.names,
            mbid=mbid,
            tempo=median_low(self.tempos) if self.tempos else None,
            key=best[0][0],
            mode=best[0][1],
            source=SOURCE,
        )


def identity_in(document: Any) -> TrackIdentity | None:
    """Read who a low-level document is of, with the tempo and key that it gives.

    Newer extractors estimate the key thrice; theirs for electronic music counts, as the only one.

    Args:
        document: Any JSON value.

    Returns:
        None where it is no such document. Tempo or key are None where they are not plausible.
    """
    try:
        bpm = float(document["rhythm"]["bpm"])
        tonal = document["tonal"]
        edma = tonal.get("key_edma", {})
        key = KEYS.get(tonal.get("key_key") or edma.get("key", ""))
        scale = tonal.get("key_scale") or edma.get("scale")
        metadata = document.get("metadata", {})
        tags = metadata.get("tags", {})
        length_s = metadata.get("audio_properties", {}).get("length")
        mbid = _first(tags, "musicbrainz_recordingid") or _first(tags, "musicbrainz_trackid")
        has_key = key is not None and scale in MODES
        has_length = isinstance(length_s, int | float) and 0 < length_s <= MAX_DURATION_S
        return TrackIdentity(
            artist=_first(tags, "artist"),
            title=_first(tags, "title"),
            mbid=known_id(Platform.MBID, mbid),
            isrc=known_id(Platform.ISRC, _first(tags, "isrc")),
            album=_first(tags, "album") or None,
            duration_s=float(length_s) if has_length else None,
            tempo=bpm if TEMPO_RANGE[0] <= bpm <= TEMPO_RANGE[1] else None,
            key=key if has_key else None,
            mode=MODES.index(scale) if has_key else None,
            source=SOURCE,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _first(tags: dict[str, object], name: str) -> str:
    """The first value of a tag, which is a list of text or a text; what is no Unicode left out."""
    value = tags.get(name)
    if isinstance(value, list):
        value = value[0] if value else ""
    return value[:MAX_TEXT].encode(errors="ignore").decode() if isinstance(value, str) else ""
