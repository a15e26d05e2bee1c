"""One Lance dataset whose rows are keyed by track: upserts, deletions, and what has changed.

Invariant: a write is in the store, and on a local disk synced, before the call returns; it is
stored completely or not at all, whatever other writers do.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.ulid import new_ulid
from serve_app.library.place import LibraryPlace

if TYPE_CHECKING:
    import lance

T = TypeVar("T")

logger = logging.getLogger(__name__)

KEY = "track_id"
STAMP = b"afa.dataset"
CONFLICT_RETRIES = 20
CONFLICTS_FOR = timedelta(minutes=5)
"""Several writers and a slow store need more than Lance's half minute to take turns."""

LAST_VERSION = 2**64 - 1
"""A manifest's name is this number minus its version, so that the newest sorts first."""

KEPT_VERSIONS = timedelta(minutes=30)
"""Longer than any reader needs a version."""

FRAGMENT_ROWS = 20_000
SMALL_FRAGMENTS = 32
"""From this number on, fragments that are not full are joined."""

CACHE_BYTES = 256 * 1024 * 1024
METADATA_BYTES = 32 * 1024 * 1024
"""Small, since much metadata is of replaced versions, which nobody reads again."""
AWAY_S = 5
"""Seconds after which it is worth trying again."""


@contextmanager
def at_hand() -> Iterator[None]:
    """Report a failing store as unavailable: it is temporary, and not the request's fault.

    Raises:
        ServiceUnavailableError: The store cannot be reached, or fails to read or write.
    """
    try:
        yield
    except OSError as error:
        logger.warning("the store of the library: %s", error)
        raise ServiceUnavailableError(
            "the store of the library cannot be reached; try again", AWAY_S
        ) from error


class Dataset:
    """Rows of one schema, one per track. Safe to share between threads."""

    def __init__(self, place: LibraryPlace, name: str, schema: pa.Schema) -> None:
        """Open the dataset, and create it if it does not exist."""
        self._uri = place.dataset(name)
        self._is_local = place.folder is not None
        self._options = dict(place.options) or None
        self._lock = threading.Lock()
        self._dataset = self._open_or_make(schema)
        self.schema: pa.Schema = self._dataset.schema

    def _open_or_make(self, schema: pa.Schema) -> "lance.LanceDataset":
        stamped = schema.with_metadata({STAMP: new_ulid()})
        with suppress(ValueError):
            return self._open()
        import lance

        try:
            lance.write_dataset(
                stamped.empty_table(), self._uri, mode="create", storage_options=self._options
            )
        except OSError:
            with suppress(ValueError):
                return self._open()  # another process created it first
            raise
        return self._open()

    def _open(self) -> "lance.LanceDataset":
        import lance  # imports pandas, and most commands open no library

        return lance.dataset(
            self._uri,
            storage_options=self._options,
            index_cache_size_bytes=CACHE_BYTES,
            metadata_cache_size_bytes=METADATA_BYTES,
        )

    @property
    def stamp(self) -> str:
        """Distinguishes this dataset from any other, present or past, at the same place."""
        return str((self.schema.metadata or {})[STAMP].decode())

    def latest(self) -> "lance.LanceDataset":
        """Return the newest version, which does not change."""
        with self._lock, at_hand():
            newest = self._dataset.latest_version
            if newest != self._dataset.version:
                self._dataset = self._dataset.checkout_version(newest)
            return self._dataset

    def upsert(self, rows: pa.Table, condition: str | None = None) -> int:
        """Write rows, replacing those of the same tracks; return how many were written.

        Args:
            rows: At most one row per track.
            condition: SQL over ``source`` and ``target``: an existing row that does not meet it
                stays unchanged. It is evaluated against the version that the write follows.
        """

        def merge(dataset: "lance.LanceDataset") -> int:
            done = (
                dataset.merge_insert(KEY)
                .when_matched_update_all(condition)
                .when_not_matched_insert_all()
                .conflict_retries(CONFLICT_RETRIES)
                .retry_timeout(CONFLICTS_FOR)
                .execute(rows)
            )
            return int(done["num_inserted_rows"] + done["num_updated_rows"])

        return self._write(merge)

    def delete(self, track_ids: Collection[str]) -> None:
        """Remove the rows of some tracks."""
        if track_ids:
            self._write(lambda dataset: dataset.delete(f"{KEY} IN ({_quoted(track_ids)})"))

    def _write(self, write: "Callable[[lance.LanceDataset], T]") -> T:
        before = self.latest()
        # A write moves the object that makes it on to its version; readers keep theirs.
        target = before.checkout_version(before.version)
        with at_hand():
            done = write(target)
            if self._is_local:
                self._sync(before, target)
        return done

    def of_tracks(self, track_ids: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Read some columns of some tracks, in no particular order."""
        where = f"{KEY} IN ({_quoted(track_ids)})" if track_ids else "false"
        return self.read(columns=[KEY, *columns], filter=where)

    def read(self, **asked: Any) -> pa.Table:
        """Read the newest version with arguments of a Lance scanner."""
        dataset = self.latest()
        with at_hand():
            return dataset.scanner(**asked).to_table()

    def maintain(self) -> None:
        """Join small files, bring the indices up to date, remove old versions."""
        dataset = self.latest()
        small = [one for one in dataset.get_fragments() if one.count_rows() < FRAGMENT_ROWS]
        if len(small) >= SMALL_FRAGMENTS:
            dataset.optimize.compact_files(target_rows_per_fragment=FRAGMENT_ROWS)
        if len(small) >= SMALL_FRAGMENTS or self._has_unindexed(dataset):
            self._index(dataset)
        dataset.cleanup_old_versions(
            older_than=KEPT_VERSIONS,
            error_if_tagged_old_versions=False,  # a backup's versions stay
        )

    def _index(self, dataset: "lance.LanceDataset") -> None:
        if dataset.describe_indices():
            dataset.optimize.optimize_indices()
        else:
            dataset.create_scalar_index(KEY, "BTREE")

    def _has_unindexed(self, dataset: "lance.LanceDataset") -> bool:
        """Return whether complete fragments are in no index, as after an import."""
        unindexed = dataset.count_rows()
        if dataset.describe_indices():
            unindexed = dataset.stats.index_stats(f"{KEY}_idx")["num_unindexed_rows"]
        return unindexed >= FRAGMENT_ROWS

    def _sync(self, before: "lance.LanceDataset", after: "lance.LanceDataset") -> None:
        """Flush the files of a version to disk, beyond the kernel's cache."""
        known = set(_files(before))
        root = Path(self._uri)
        written = [root / name for name in _files(after) if name not in known]
        written.append(root / "_versions" / f"{LAST_VERSION - after.version:020d}.manifest")
        for path in [*written, *{path.parent for path in written}]:
            sync(path)


def _files(dataset: "lance.LanceDataset") -> Iterator[str]:
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        for file in metadata.files:
            yield f"data/{file.path}"
        deleted = metadata.deletion_file
        if deleted is not None:
            yield str(deleted.path(fragment.fragment_id))


def sync(path: Path) -> None:
    """Flush a file or a folder to disk, beyond the kernel's cache."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # joined with other files in the meantime
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # folders that VirtualBox shares cannot be synced
            raise
    finally:
        os.close(descriptor)


def _quoted(track_ids: Collection[str]) -> str:
    return ", ".join("'" + one.replace("'", "''") + "'" for one in track_ids)
