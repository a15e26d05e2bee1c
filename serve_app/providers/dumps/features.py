"""AcousticBrainz's feature dump → catalog Parquet: tempo and key by MBID.

It is three ``.tar.zst`` archives of one CSV each, of which ``rhythm`` and ``tonal`` are used. They
have one row per submission, all values as text, empty if missing; some 29.5 million rows of 7.5
million recordings. Each archive is read once and divided by the first digit of the MBID into 16
files, so that no more than a sixteenth is ever in memory. Several submissions of one recording
disagree: the median tempo and the commonest key are used. Tempo may still be half or double, so
rows are not verified.

References:
    https://acousticbrainz.org/download (2022-07-06). The data is CC0.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from pipelines.analysis.tonality.notes import MODES
from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.build import Progress, write_parquet
from serve_app.providers.catalog.rows import TEMPO_RANGE
from serve_app.providers.dumps.acousticbrainz import KEYS, SOURCE
from serve_app.providers.dumps.files import DumpFormatError, DumpReport, open_members

DIGITS = "0123456789abcdef"
BLOCK_BYTES = 8 << 20
"""Bytes of a CSV that are read at once."""

_MBID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_NUMBER = r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, slots=True)
class Feature:
    """One archive of the dump.

    Attributes:
        columns: Columns to read in addition to the MBID.
        values: Turns them into numbers of ``type``; null if they have no usable value.
        missing: The reason reported for nulls.
    """

    name: str
    columns: tuple[str, ...]
    values: Callable[[pa.RecordBatch], pa.Array]
    type: pa.DataType
    missing: str


def _tempos(batch: pa.RecordBatch) -> pa.Array:
    """Return the plausible tempos, in BPM."""
    is_number = pc.match_substring_regex(batch["bpm"], _NUMBER)
    bpm = pc.if_else(is_number, batch["bpm"], None).cast(pa.float64())
    is_good = pc.and_(pc.greater_equal(bpm, TEMPO_RANGE[0]), pc.less_equal(bpm, TEMPO_RANGE[1]))
    return pc.if_else(is_good, bpm, None)


def _keys(batch: pa.RecordBatch) -> pa.Array:
    """Return twice the key, plus the mode."""
    numbers = pa.array(list(KEYS.values()), pa.int8())
    keys = numbers.take(pc.index_in(batch["key_key"], pa.array(list(KEYS))))
    modes = pc.index_in(batch["key_scale"], pa.array(MODES)).cast(pa.int8())
    return pc.add(pc.multiply(keys, pa.scalar(2, pa.int8())), modes)


RHYTHM = Feature("rhythm", ("bpm",), _tempos, pa.float64(), "no plausible bpm")
TONAL = Feature("tonal", ("key_key", "key_scale"), _keys, pa.int8(), "no known key")


def import_features(rhythm: Path, tonal: Path, parquet: Path, tell: Progress) -> DumpReport:
    """Convert the feature dump's ``rhythm`` and ``tonal`` archives (or their bare CSV files).

    Raises:
        DumpFormatError: An archive has no such CSV; nothing is written.
    """
    report = DumpReport()
    with TemporaryDirectory(dir=parquet.parent) as name:
        room = Path(name)
        for feature, archive in ((RHYTHM, rhythm), (TONAL, tonal)):
            divide(archive, feature, room / feature.name, report, tell)
        write_parquet((row for digit in DIGITS for row in identities_of(room, digit)), parquet)
    return report


def check(archive: Path, feature: Feature) -> None:
    """Check the beginning of an archive.

    Raises:
        DumpFormatError: It has no such CSV.
    """
    next(_blocks(archive, feature), None)


def divide(
    archive: Path, feature: Feature, folder: Path, report: DumpReport, tell: Progress
) -> None:
    """Divide the submissions of an archive into 16 files of a new folder.

    Raises:
        DumpFormatError: The archive has no such CSV, or an empty one, or is cut off.
    """
    folder.mkdir()
    schema = pa.schema([("mbid", pa.string()), ("value", feature.type)])
    n_before, n_items = report.n_used, 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.OSFile(str(folder / digit), "wb")) for digit in DIGITS]
        packed = pa.ipc.IpcWriteOptions(compression="zstd")
        writers = [
            stack.enter_context(pa.ipc.new_stream(file, schema, options=packed)) for file in files
        ]
        for batch, share in _blocks(archive, feature):
            kept = _kept(batch, feature, report)
            digits = pc.utf8_slice_codeunits(kept["mbid"], 0, 1)
            for digit, writer in zip(DIGITS, writers, strict=True):
                writer.write_batch(kept.filter(pc.equal(digits, digit)))
            n_items += batch.num_rows
            tell(f"reading {archive.name}", n_items, max(n_items, round(n_items / share)))
    if report.n_used == n_before:
        raise DumpFormatError(f"{archive}: none of its {n_items} rows has a {feature.name} value")


def identities_of(room: Path, digit: str) -> Iterator[TrackIdentity]:
    """Yield the recordings whose MBID begins with a digit, from both divided archives."""
    tempos = _median_tempos(_read(room / RHYTHM.name / digit))
    keys = _commonest_keys(_read(room / TONAL.name / digit))
    for mbid in sorted(tempos.keys() | keys.keys()):
        key, mode = keys.get(mbid, (None, None))
        yield TrackIdentity(mbid=mbid, tempo=tempos.get(mbid), key=key, mode=mode, source=SOURCE)


def _blocks(archive: Path, feature: Feature) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield the wanted columns as text, with the share of the CSV read so far."""
    columns = ["mbid", *feature.columns]
    types = dict.fromkeys(columns, pa.string())
    wanted = csv.ConvertOptions(include_columns=columns, column_types=types)
    for file, n_bytes in _csv_in(archive):
        head = file.readline()
        while lines := file.read(BLOCK_BYTES) + file.readline():
            text = pa.BufferReader(head + lines)
            try:
                table = csv.read_csv(text, csv.ReadOptions(use_threads=False), None, wanted)
            except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
                message = f"{archive}: not a CSV with {', '.join(columns)}, or cut off"
                raise DumpFormatError(f"{message}; fetch it again") from error
            for batch in table.combine_chunks().to_batches():
                yield batch, file.tell() / n_bytes


def _csv_in(archive: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Yield the CSV in an archive, or the file itself, and its size."""
    if archive.suffix == ".csv":
        with archive.open("rb") as bare:
            yield bare, archive.stat().st_size
        return
    for name, n_bytes, file in open_members(archive):
        if name.endswith(".csv"):
            yield file, n_bytes
            return
    raise DumpFormatError(f"{archive}: holds no CSV")


def _kept(batch: pa.RecordBatch, feature: Feature, report: DumpReport) -> pa.RecordBatch:
    """Return the rows with a usable value, and count all."""
    mbids = pc.utf8_lower(batch["mbid"])
    rows = pa.record_batch({"mbid": mbids, "value": feature.values(batch)})
    named = rows.filter(pc.match_substring_regex(mbids, _MBID))
    kept = named.filter(pc.is_valid(named["value"]))
    report.n_items += rows.num_rows
    report.n_used += kept.num_rows
    for n, reason in (
        (rows.num_rows - named.num_rows, "no MBID"),
        (named.num_rows - kept.num_rows, feature.missing),
    ):
        if n:
            report.reasons[reason] += n
    return kept


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def _median_tempos(table: pa.Table) -> dict[str, float]:
    """Return the lower median of each recording's tempos, by MBID."""
    ordered = table.sort_by([("mbid", "ascending"), ("value", "ascending")])
    starts, sizes = _runs(ordered["mbid"])
    middles = starts + (sizes - 1) // 2
    return dict(
        zip(
            ordered["mbid"].take(pa.array(starts)).to_pylist(),
            ordered["value"].take(pa.array(middles)).to_pylist(),
            strict=True,
        )
    )


def _commonest_keys(table: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the commonest (key, mode) of each recording, by MBID; of equals the lower one."""
    votes = table.group_by(["mbid", "value"]).aggregate([("value", "count")])
    votes = votes.sort_by(
        [("mbid", "ascending"), ("value_count", "descending"), ("value", "ascending")]
    )
    starts, _ = _runs(votes["mbid"])
    first = votes.take(pa.array(starts))
    return {
        mbid: divmod(code, 2)
        for mbid, code in zip(first["mbid"].to_pylist(), first["value"].to_pylist(), strict=True)
    }


def _runs(ordered: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each run of equal values starts in a sorted column, and its length."""
    if len(ordered) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    column = ordered.combine_chunks()
    differs = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(differs) + 1]).astype(np.int64)
    return starts, np.diff(np.append(starts, len(column)))
