"""Builds a fingerprint index step by step, while replicas keep reading it."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.hashes import index_hashes
from models.fingerprint.landmarks import Fingerprint
from serve_app.domain.ulid import new_ulid
from serve_app.providers.fingerprints.kept_landmarks import LandmarkBlocks, to_blocks
from serve_app.providers.fingerprints.manifest import (
    DamagedIndexError,
    Manifest,
    SegmentEntry,
    exclusive,
    is_current,
    read_manifest,
    write_manifest,
)
from serve_app.providers.fingerprints.segment import (
    MOST_FRAMES,
    N_SHARDS,
    SHARD_BITS,
    Segment,
    track_span,
    write_segment,
)

FLUSH_POSTINGS = 16_000_000
"""Postings kept in memory before they become a segment: 128 MB, about 1,500 tracks."""
COMMIT_EVERY = 1000
MOST_SEGMENTS = 6
"""A look-up visits every segment, so some are merged beyond this number, as far as they fit into
`MOST_FRAMES`: some 28,000 hours."""
MOST_SHARE = 1 / 3
"""A merge makes no larger part of the index if another is possible."""

_Part = tuple[NDArray[np.uint32], NDArray[np.uint32]]


class FingerprintIndexBuilder:
    """Adds tracks to an index folder. A context manager: it holds the folder's lock.

    Nothing is visible to readers before `commit`; a builder that dies before leaves the index as it
    was. An index made by another fingerprint is of no use and is started afresh.
    """

    def __init__(
        self,
        folder: Path,
        flush_postings: int = FLUSH_POSTINGS,
        most_segments: int = MOST_SEGMENTS,
    ) -> None:
        self._folder = folder
        self._flush_postings = flush_postings
        self._most_segments = most_segments
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(exclusive(self._folder))
        has_index = is_current(self._folder)
        self._manifest = read_manifest(self._folder) if has_index else Manifest()
        self._delete_unused()
        self._entries = list(self._manifest.segments)
        self._where: dict[str, tuple[str, int]] = {}
        for entry in self._entries:
            dropped = set(entry.dropped)
            for i, key in enumerate(self._open(entry).keys):
                if i not in dropped:
                    self._where[key] = (entry.name, i)
        self._clear_buffer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __contains__(self, key: str) -> bool:
        return key in self._where

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def digests(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return, by committed track, a digest that only tracks with identical sound share."""
        segments = {entry.name: self._open(entry) for entry in self._entries}
        places = {key: self._where[key] for key in keys}
        return {
            key: hashlib.sha256(segments[name].subfingerprints.of(i).tobytes()).digest()
            for key, (name, i) in places.items()
        }

    def add(self, key: str, fingerprint: Fingerprint) -> int:
        """Add a track, or replace it.

        Returns:
            How many hashes it has; a silent track has none and is only recorded as seen.
        """
        self.remove(key)
        span = track_span(fingerprint.n_frames)
        if self._timeline + span > MOST_FRAMES or self._n_buffered >= self._flush_postings:
            self._flush()
        hashes, frames = index_hashes(fingerprint)
        self._where[key] = ("", len(self._keys))
        self._keys.append(key)
        self._track_starts.append(self._timeline)
        self._parts.append((hashes, frames + np.uint32(self._timeline)))
        self._landmarks.append(to_blocks(fingerprint, span))
        self._subfingerprints.append(fingerprint.subfingerprints)
        self._timeline += span
        self._n_buffered += len(hashes)
        return len(hashes)

    def build(
        self,
        tracks: Iterable[tuple[str, Fingerprint]],
        on_progress: Callable[[int, str], None] | None = None,
        commit_every: int = COMMIT_EVERY,
    ) -> int:
        """Add many tracks and commit, also at intervals along the way.

        Args:
            tracks: Keys and fingerprints; computed when they are needed.
            on_progress: Called with the number of tracks done and the last one's key.
            commit_every: Tracks after which finished ones become visible and survive a crash.

        Returns:
            How many tracks were added.
        """
        n = 0
        for n, (key, fingerprint) in enumerate(tracks, 1):
            self.add(key, fingerprint)
            if n % commit_every == 0:
                self.commit()
            if on_progress is not None:
                on_progress(n, key)
        self.commit()
        return n

    def remove(self, key: str) -> bool:
        """Remove a track; return False if it is not in the index."""
        place = self._where.pop(key, None)
        if place is None:
            return False
        name, i = place
        if not name:
            # Its postings stay in the buffer under a track that is dropped at the next flush.
            self._buffer_dropped.append(i)
            return True
        self._entries = [
            replace(e, dropped=(*e.dropped, i)) if e.name == name else e for e in self._entries
        ]
        return True

    def commit(self) -> None:
        """Publish everything so far, then merge segments and delete unused ones.

        Raises:
            FingerprintIndexError: A segment to be merged is damaged; what is published stays.
        """
        self._flush()
        self._entries = [one for one in self._entries if len(one.dropped) < one.n_tracks]
        self._publish()
        while len(self._entries) > self._most_segments and self._merge_two():
            self._publish()
        self._delete_unused()

    def _merge_two(self) -> bool:
        """Merge the best pair that fits into one segment; return whether there is any."""
        try:
            return any(map(self._merge, self._alike()))
        except (IndexError, ValueError) as error:
            raise DamagedIndexError(self._folder, error) from error

    def _alike(self) -> list[tuple[SegmentEntry, SegmentEntry]]:
        """Return pairs to merge, best first: of like size, or each new track rewrites many."""
        by_size = sorted(self._entries, key=_n_kept)
        most = MOST_SHARE * sum(map(_n_kept, by_size))

        def cost(pair: tuple[SegmentEntry, SegmentEntry]) -> tuple[bool, float]:
            small, large = map(_n_kept, pair)
            return small + large > most, large / max(small, 1)

        return sorted(pairwise(by_size), key=cost)

    def _open(self, entry: SegmentEntry) -> Segment:
        try:
            return Segment(self._folder / entry.name)
        except (FileNotFoundError, ValueError) as error:
            raise DamagedIndexError(self._folder, error) from error

    def _publish(self) -> None:
        self._manifest = Manifest(tuple(self._entries))
        write_manifest(self._folder, self._manifest)

    def _clear_buffer(self) -> None:
        self._keys: list[str] = []
        self._track_starts: list[int] = []
        self._parts: list[_Part] = []
        self._landmarks: list[LandmarkBlocks] = []
        self._subfingerprints: list[NDArray[np.uint64]] = []
        self._buffer_dropped: list[int] = []
        self._timeline = 0
        self._n_buffered = 0

    def _flush(self) -> None:
        if not self._keys:
            return
        hashes = np.concatenate([h for h, _ in self._parts])
        positions = np.concatenate([p for _, p in self._parts])
        entry = self._write(
            self._keys,
            np.array(self._track_starts),
            self._timeline,
            len(hashes),
            _by_shard(hashes, positions),
            sum(len(part.frames) for part in self._landmarks),
            self._landmarks,
            self._subfingerprints,
        )
        entry = replace(entry, dropped=tuple(self._buffer_dropped))
        dropped = set(self._buffer_dropped)
        for i, key in enumerate(self._keys):
            if i not in dropped:
                self._where[key] = (entry.name, i)
        self._entries.append(entry)
        self._clear_buffer()

    def _write(
        self,
        keys: list[str],
        track_starts: NDArray[np.int64],
        n_frames: int,
        n_postings: int,
        shards: Iterator[_Part],
        n_landmarks: int,
        landmarks: Iterable[LandmarkBlocks],
        subfingerprints: Sequence[NDArray[np.uint64]],
    ) -> SegmentEntry:
        name = f"segment-{new_ulid().lower()}"
        write_segment(
            self._folder / name,
            keys,
            track_starts,
            n_frames,
            n_postings,
            shards,
            n_landmarks,
            landmarks,
            subfingerprints,
        )
        return SegmentEntry(name, len(keys), n_postings)

    def _merge(self, entries: Sequence[SegmentEntry]) -> bool:
        """Replace segments with one that lacks their dropped tracks, if they fit into one."""
        sources = [(self._open(e), set(e.dropped)) for e in entries]
        keys: list[str] = []
        starts: list[int] = []
        moves: list[NDArray[np.int64]] = []
        landmarks: list[LandmarkBlocks] = []
        subfingerprints: list[NDArray[np.uint64]] = []
        timeline = 0
        for segment, dropped in sources:
            ends = np.append(segment.track_starts[1:], segment.n_frames)
            move = np.full(len(segment.keys), _GONE, np.int64)
            for i, key in enumerate(segment.keys):
                if i in dropped:
                    continue
                move[i] = timeline - int(segment.track_starts[i])
                keys.append(key)
                starts.append(timeline)
                begin, end = int(segment.track_starts[i]), int(ends[i])
                landmarks.append(segment.landmarks.blocks(begin, end))
                subfingerprints.append(segment.subfingerprints.of(i))
                timeline += end - begin
            moves.append(move)
        if timeline > MOST_FRAMES:
            return False
        n_postings = sum(segment.n_postings for segment, _ in sources)
        shards = (
            _moved([(segment, move) for (segment, _), move in zip(sources, moves, strict=True)], s)
            for s in range(N_SHARDS)
        )
        merged = self._write(
            keys,
            np.array(starts, np.int64),
            timeline,
            n_postings,
            shards,
            sum(len(part.frames) for part in landmarks),
            landmarks,
            subfingerprints,
        )
        gone = {e.name for e in entries}
        self._entries = [e for e in self._entries if e.name not in gone] + [merged]
        self._where |= {key: (merged.name, i) for i, key in enumerate(keys)}
        return True

    def _delete_unused(self) -> None:
        """Delete segments that no manifest names; open readers keep those they have mapped."""
        used = {entry.name for entry in self._manifest.segments}
        for folder in self._folder.glob("segment-*"):
            if folder.name not in used:
                shutil.rmtree(folder)


def _n_kept(entry: SegmentEntry) -> float:
    """Return about how many postings a merge keeps of a segment."""
    return entry.n_postings * (1 - len(entry.dropped) / entry.n_tracks)


_GONE = np.iinfo(np.int64).min


def _by_shard(hashes: NDArray[np.uint32], positions: NDArray[np.uint32]) -> Iterator[_Part]:
    shard = hashes >> np.uint32(32 - SHARD_BITS)
    for s in range(N_SHARDS):
        mine = shard == s
        yield hashes[mine], positions[mine]


def _moved(sources: list[tuple[Segment, NDArray[np.int64]]], s: int) -> _Part:
    """Return one shard of several segments, each track moved to its new place."""
    all_hashes, all_positions = [], []
    for segment, move in sources:
        hashes, positions = segment.shard(s)
        by = move[segment.track_of(positions.astype(np.int64))] if len(positions) else move[:0]
        stays = by != _GONE
        all_hashes.append(hashes[stays])
        all_positions.append((positions[stays] + by[stays]).astype(np.uint32))
    return np.concatenate(all_hashes), np.concatenate(all_positions)
