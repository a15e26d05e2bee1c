"""Import Parquet files into a new index and publish it atomically; export the index again.

Layout of a catalog folder: ``versions/<time>/`` holds one immutable index each, and the symbolic
link ``current`` names the published one; ``importing/`` is the next one. Invariant: readers see the
old catalog or the new one, never a mixture; an import that ended early, for whatever reason, leaves
the old one in place, and a repeat continues after what it has committed.
"""

import fcntl
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.index import (
    CURRENT,
    INDEX_FORMAT,
    META,
    VERSIONS,
    build_schema,
    document_of,
    identities_in_order,
)
from serve_app.providers.catalog.rows import (
    DEFAULT_AUDIO,
    SCHEMA,
    AudioPolicy,
    RowError,
    parse_row,
    table_of,
)

BATCH_ROWS = 10_000
COMMIT_ROWS = 1_000_000
"""Most rows to import again, one or two minutes' work; a commit waits for the index."""

IMPORTING, STATE = "importing", "state.json"
MAX_EXAMPLES = 100
HEAP_BYTES = 256 * 1024 * 1024
INDEX_THREADS = 2
"""One accepts rows while the other writes its segment."""
LOOK_S = 1.0
"""How often to count the segments that are left to merge."""

Progress = Callable[[str, int, int | None], None]
"""Called with the step, how much of it is done, and how much there is, if that is known."""


class CatalogBusyError(RuntimeError):
    """Another such operation is running in the same folder."""


class CatalogFileError(ValueError):
    """A file is not Parquet, is damaged, or has none of the catalog's columns."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """One row that was left out; ``row`` counts from 1 in that file."""

    path: str
    row: int
    reason: str


@dataclass(slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        n_before: How many of its rows an earlier attempt imported.
        duration_s: Duration of this attempt.
        reasons: How many rows were rejected for each reason.
        examples: The first 100 rejected rows.
    """

    n_rows: int = 0
    n_imported: int = 0
    n_before: int = 0
    duration_s: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    examples: list[RejectedRow] = field(default_factory=list)

    def reject(self, path: Path, row: int, error: RowError) -> None:
        """Record a rejected row."""
        self.reasons[str(error)] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(RejectedRow(str(path), row, str(error)))

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> "ImportReport":
        """Read what `_fields_of` returned."""
        examples = [RejectedRow(**one) for one in known["examples"]]
        return cls(**{**known, "reasons": Counter(known["reasons"]), "examples": examples})


def build_catalog(
    parquet_paths: Sequence[Path],
    folder: Path,
    progress: Progress | None = None,
    audio: AudioPolicy = DEFAULT_AUDIO,
) -> ImportReport:
    """Replace the catalog in ``folder`` with the rows of the given files.

    Rows that share a MusicBrainz id complete each other, with precedence for the earlier file, so
    names and measurements may come in separate files. An import of the same, unchanged files
    continues where an earlier one ended.

    Raises:
        CatalogFileError: A file cannot be read; the old catalog stays.
        CatalogBusyError: Another import is running.
        OSError: The index cannot be written; the committed part stays.
    """
    started = time.monotonic()
    with locked(folder, "import"):
        n_total = sum(open_parquet(path).metadata.num_rows for path in parquet_paths)
        fresh = folder / IMPORTING
        with _faults_named(fresh):
            report = _fill(fresh, parquet_paths, n_total, progress, audio)
        report.duration_s = time.monotonic() - started
        _write_meta(fresh, report)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        (folder / VERSIONS).mkdir(exist_ok=True)
        fresh.rename(folder / VERSIONS / stamp)
        (folder / VERSIONS / stamp / STATE).unlink()
        former = _publish(folder, stamp)
        _remove_versions(folder, keep={stamp, former})
    return report


def export_catalog(folder: Path, parquet_path: Path, progress: Progress | None = None) -> int:
    """Write the published catalog to one Parquet file, in import order.

    Returns:
        How many rows were written.

    Raises:
        FileNotFoundError: Nothing is published in ``folder``.
    """
    version = (folder / CURRENT).resolve(strict=True)
    n_total = int(json.loads((version / META).read_text())["n_imported"])
    n_done = 0

    def identities() -> Iterator[TrackIdentity]:
        nonlocal n_done
        for chunk in identities_in_order(version, BATCH_ROWS):
            yield from chunk
            n_done += len(chunk)
            if progress is not None:
                progress("exporting", n_done, n_total)

    return write_parquet(identities(), parquet_path)


def write_parquet(identities: Iterable[TrackIdentity], path: Path) -> int:
    """Write identities as a catalog file, 10 000 at a time; it appears only when complete.

    Returns:
        How many rows were written.
    """
    partial = path.with_name(f"{path.name}.partial")
    n_rows = 0
    try:
        with pq.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
            for chunk in _chunks(identities, BATCH_ROWS):
                writer.write_table(table_of(chunk))
                n_rows += len(chunk)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return n_rows


def _chunks(identities: Iterable[TrackIdentity], n: int) -> Iterator[list[TrackIdentity]]:
    iterator = iter(identities)
    while chunk := list(islice(iterator, n)):
        yield chunk


def _fill(
    version: Path,
    paths: Sequence[Path],
    n_total: int,
    progress: Progress | None,
    audio: AudioPolicy,
) -> ImportReport:
    marks = [
        f"{INDEX_FORMAT} {audio.anywhere}",
        *(f"{path.resolve()} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in paths),
    ]
    index, states = _opened(version, marks)
    report = deepcopy(states[-1]) if states else ImportReport()
    report.n_before = n_committed = report.n_rows
    n_seen = 0
    writer = index.writer(heap_size=HEAP_BYTES, num_threads=INDEX_THREADS)

    def commit() -> None:
        states[:] = [*states[-1:], deepcopy(report)]
        _write_state(version, marks, states)
        writer.commit()

    for path in paths:
        file = open_parquet(path)
        base = path.resolve().parent
        n_earlier = n_seen
        if n_earlier + file.metadata.num_rows <= report.n_before:
            n_seen += file.metadata.num_rows
            continue
        for batch in _batches(path, file):
            n_seen += batch.num_rows
            n_fresh = n_seen - report.n_before
            if n_fresh <= 0:
                continue
            fresh = batch.slice(max(0, batch.num_rows - n_fresh))
            for row in _without_empty(fresh).to_pylist():
                report.n_rows += 1
                try:
                    identity = parse_row(row, base, audio)
                except RowError as error:
                    report.reject(path, report.n_rows - n_earlier, error)
                    continue
                writer.add_document(document_of(identity, report.n_imported))
                report.n_imported += 1
            if progress is not None:
                progress("importing", report.n_rows, n_total)
            if report.n_rows - n_committed >= COMMIT_ROWS:
                commit()
                n_committed = report.n_rows
    commit()
    _wait_for_merges(index, writer, progress)
    return report


def _wait_for_merges(
    index: tantivy.Index, writer: tantivy.IndexWriter, progress: Progress | None
) -> None:
    """Wait, and report how many segments are left: the last merges of a dump take minutes."""
    ended: Future[None] = Future()

    def wait() -> None:
        try:
            writer.wait_merging_threads()
        except BaseException as error:  # noqa: BLE001 - the waiting thread must get any
            ended.set_exception(error)
        else:
            ended.set_result(None)

    # A process that ends, also by Ctrl-C, does not wait for it: what is committed stays.
    threading.Thread(target=wait, daemon=True).start()
    while not wait_for([ended], LOOK_S).done:
        if progress is not None:
            index.reload()
            progress("merging the index, segments left:", index.searcher().num_segments, None)
    ended.result()


@contextmanager
def _faults_named(version: Path) -> Iterator[None]:
    """Raise an `OSError` for an unwritable index."""
    try:
        yield
    except CatalogFileError:
        raise
    except ValueError as error:  # tantivy's, also for a full disk
        raise OSError(f"{version}: the index cannot be written") from error


def _without_empty(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop columns without any value; they are half of those of a dump."""
    names = batch.schema.names
    return batch.select([name for name in names if batch[name].null_count < batch.num_rows])


def _opened(version: Path, marks: Sequence[str]) -> tuple[tantivy.Index, list[ImportReport]]:
    """Open the index that an import of the same files began, else a new one; return its state."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        state = json.loads((version / STATE).read_text())
        if state["of"] == marks:
            index = tantivy.Index.open(str(version))
            n_here = index.searcher().num_docs
            states = [ImportReport.from_json(one) for one in state["committed"]]
            # The last commit may not have been completed.
            committed = [one for one in states if one.n_imported == n_here]
            if committed or n_here == 0:
                return index, committed[-1:]
    shutil.rmtree(version, ignore_errors=True)
    version.mkdir()
    _write_state(version, marks, [])
    return tantivy.Index(build_schema(), path=str(version)), []


def _write_state(version: Path, marks: Sequence[str], states: Sequence[ImportReport]) -> None:
    """Record the state after the commit that follows, and the one after the commit before."""
    fresh = version / f"{STATE}.partial"
    with fresh.open("w") as file:
        json.dump({"of": marks, "committed": states}, file, default=_fields_of)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(version / STATE)


def _fields_of(one: Any) -> dict[str, object]:
    # `asdict` would count the items of a Counter.
    return {field.name: getattr(one, field.name) for field in fields(one)}


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a catalog file; raises `CatalogFileError` if it is not one."""
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise CatalogFileError(f"{path}: no such file") from error
    except UnicodeEncodeError as error:  # Arrow's
        raise CatalogFileError(f"{path}: the name is not UTF-8; rename the file") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise CatalogFileError(f"{path}: not a readable Parquet file") from error
    if not set(SCHEMA.names) & set(file.schema_arrow.names):
        raise CatalogFileError(f"{path}: has none of the columns {', '.join(SCHEMA.names)}")
    return file


def rows_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a catalog file, which may be larger than memory.

    Raises:
        CatalogFileError: It is not one, or is damaged.
    """
    for batch in _batches(path, open_parquet(path)):
        yield from batch.to_pylist()


def _batches(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    columns = [name for name in SCHEMA.names if name in file.schema_arrow.names]
    try:
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            batch.validate(full=True)
            yield batch
    except (OSError, pa.ArrowInvalid) as error:
        raise CatalogFileError(f"{path}: cannot be read to its end: {error}") from error


def _write_meta(version: Path, report: ImportReport) -> None:
    meta = {
        "format": INDEX_FORMAT,
        "created_at": datetime.now(UTC).isoformat(),
        "n_rows": report.n_rows,
        "n_imported": report.n_imported,
        "duration_s": report.duration_s,
        "reasons": report.reasons,
    }
    (version / META).write_text(json.dumps(meta, indent=2))


def _publish(folder: Path, stamp: str) -> str:
    """Point ``current`` at the new version in one rename; return the former version's name."""
    link = folder / CURRENT
    former = Path(os.readlink(link)).name if link.is_symlink() else ""
    fresh = folder / f".{CURRENT}.{stamp}"
    fresh.symlink_to(Path(VERSIONS) / stamp)
    fresh.replace(link)
    return former


def _remove_versions(folder: Path, keep: set[str]) -> None:
    """Remove all versions except the published one and the one that readers may still use."""
    for path in (folder / VERSIONS).iterdir():
        if path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(folder: Path, work: str) -> Iterator[None]:
    """Reserve a folder for one process while it does this work.

    Raises:
        CatalogBusyError: Another process is doing so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CatalogBusyError(
                f"another {work} into {folder} is running; wait until it has ended"
            ) from error
        yield
