"""A segment of the fingerprint index: immutable, memory-mapped, sharded by hash.

A hash's first four bits choose the shard, the next ones the bucket; the rest is the tag stored with
each posting, so no bit of a hash is lost and segments can be merged. A posting is the position of
its anchor on one timeline of all the segment's tracks, in frames: 4 bytes identify track and time.

Files of a segment: ``tracks.json`` (keys), ``track_starts.npy``, ``n_frames.npy`` (the timeline's
length), and per shard ``starts-SS.npy`` (uint32 ``[buckets + 1]``), ``tags-SS.npy`` and
``positions-SS.npy`` (uint32). Next to them are the tracks' landmarks (`kept_landmarks`) and their
sub-fingerprints (`kept_subfingerprints`).
"""

import itertools
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serve_app.library.dataset import sync
from serve_app.providers.fingerprints.kept_landmarks import (
    BLOCK_FRAMES,
    KeptLandmarks,
    LandmarkBlocks,
    write_landmarks,
)
from serve_app.providers.fingerprints.kept_subfingerprints import (
    KeptSubfingerprints,
    write_subfingerprints,
)
from serve_app.providers.fingerprints.mapped import map_array, save_array

SHARD_BITS = 4
N_SHARDS = 1 << SHARD_BITS
FEWEST_BUCKET_BITS = 14
"""The directory is then 1 MB, and a tag has 14 bits."""
MOST_BUCKET_BITS = 22
POSTINGS_PER_BUCKET = 4
TRACK_GAP = 1024
"""Least frames (24 s) between tracks on the timeline: no alignment of a clip covers two."""
MOST_FRAMES = 2**32 - TRACK_GAP
WARMED_SHARE = 0.25
"""Share of the machine's memory; of a larger segment only the directory is read in advance, and
the sub-fingerprints if they alone take no more."""
_POPULATE_READ = 22
"""``MADV_POPULATE_READ`` of Linux 5.14: read the pages and enter them into the page tables."""


def track_span(n_frames: int) -> int:
    """Return the frames of the timeline that a track takes: whole blocks of landmarks."""
    return -(-(n_frames + TRACK_GAP) // BLOCK_FRAMES) * BLOCK_FRAMES


@dataclass(frozen=True, slots=True)
class Postings:
    """Hits of a look-up: segment positions uint32 ``[H]`` and which query row each answers."""

    positions: NDArray[np.uint32]
    rows: NDArray[np.int64]


class Segment:
    """One segment, opened for reading; safe to share between threads and processes."""

    def __init__(self, folder: Path) -> None:
        """Open it.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file is not as it was written.
        """
        self.folder = folder
        self.keys: list[str] = json.loads((folder / "tracks.json").read_text("utf-8"))
        self.track_starts: NDArray[np.int64] = map_array(folder, "track_starts")[0].copy()
        (self.n_frames,) = map(int, map_array(folder, "n_frames")[0])
        starts, tags, positions = (
            [map_array(folder, f"{name}-{s:02}") for s in range(N_SHARDS)]
            for name in ("starts", "tags", "positions")
        )
        self._starts, self._tags, self._positions = (
            [array for array, _ in mapped] for mapped in (starts, tags, positions)
        )
        self.landmarks = KeptLandmarks(folder)
        self.subfingerprints = KeptSubfingerprints(folder)
        self._directory = [*(pages for _, pages in starts), self.landmarks.directory]
        self._postings = [
            *(pages for _, pages in (*tags, *positions)),
            *self.landmarks.landmark_pages,
        ]
        self._bucket_bits = int(self._starts[0].size - 1).bit_length() - 1
        self.n_postings = sum(len(p) for p in self._positions)
        self.size_bytes = sum(f.stat().st_size for f in folder.iterdir())

    def track_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the track that each position is in."""
        found: NDArray[np.int64] = np.searchsorted(self.track_starts, positions, side="right") - 1
        return found

    def look_up(self, hashes: NDArray[np.uint32], most_postings: int) -> Postings:
        """Find the postings of some hashes.

        Args:
            hashes: uint32 ``[H]``.
            most_postings: Stop there. The rarest hashes, which say the most, are read first.

        Raises:
            ValueError: The directory is not as it was written.
        """
        order = np.argsort(hashes)  # neighbouring hashes share pages
        hashes = hashes[order]
        edges = np.searchsorted(hashes, _SHARD_EDGES)
        tag_bits = 32 - SHARD_BITS - self._bucket_bits
        bucket = (hashes >> np.uint32(tag_bits)) & np.uint32((1 << self._bucket_bits) - 1)
        tag = hashes & np.uint32((1 << tag_bits) - 1)
        positions, rows = [], []
        for s in range(N_SHARDS):
            mine = np.arange(edges[s], edges[s + 1])
            if not len(mine) or not len(self._positions[s]):
                continue
            begin = self._starts[s][bucket[mine]].astype(np.int64)
            count = self._starts[s][bucket[mine] + 1].astype(np.int64) - begin
            if (count < 0).any() or (begin + count).max() > len(self._positions[s]):
                raise ValueError(f"starts-{s:02}.npy leads nowhere")
            mine, begin, count = _within(mine, begin, count, most_postings // N_SHARDS)
            place = _spread(begin, count)
            hit = np.flatnonzero(self._tags[s][place] == np.repeat(tag[mine], count))
            positions.append(self._positions[s][place[hit]])
            rows.append(np.repeat(order[mine], count)[hit])
        if not positions:
            return Postings(np.zeros(0, np.uint32), np.zeros(0, np.int64))
        return Postings(np.concatenate(positions), np.concatenate(rows))

    def warm(self) -> None:
        """Read the segment into memory, so that its first look-ups need not wait for the disk."""
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        compared = self.subfingerprints.pages
        sizes = ((compared, sum(map(len, compared))), (self._postings, self.size_bytes))
        fitting = [part for part, size in sizes if size <= WARMED_SHARE * physical]
        for pages in itertools.chain(self._directory, *fitting):
            try:
                pages.madvise(_POPULATE_READ)
            except OSError:
                pages.madvise(mmap.MADV_WILLNEED)

    def shard(self, s: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return all hashes and positions of a shard, for merging."""
        tag_bits = 32 - SHARD_BITS - self._bucket_bits
        edges = self._starts[s].astype(np.int64)
        sizes = edges[1:] - edges[:-1]
        bucket = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
        top = np.uint32(s << (32 - SHARD_BITS))
        hashes = top | (bucket << np.uint32(tag_bits)) | self._tags[s].astype(np.uint32)
        return hashes, np.asarray(self._positions[s])


def write_segment(
    folder: Path,
    keys: Sequence[str],
    track_starts: NDArray[np.int64],
    n_frames: int,
    n_postings: int,
    shards: Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32]]],
    n_landmarks: int,
    landmarks: Iterable[LandmarkBlocks],
    subfingerprints: Sequence[NDArray[np.uint64]],
) -> None:
    """Write a segment into an empty folder, and flush it to disk.

    Args:
        folder: Folder to write to; created if missing.
        keys: Keys, one per track.
        track_starts: int64 ``[n_tracks]``, ascending places on the timeline, each with a block.
        n_frames: Length of the timeline.
        n_postings: Number of postings in all shards together.
        shards: `N_SHARDS` times the hashes and positions of a shard, in any order.
        n_landmarks: Number of landmarks in all tracks together.
        landmarks: Landmarks of the whole timeline, part by part.
        subfingerprints: uint64, one array per track.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = int(max(n_postings, 1) / N_SHARDS / POSTINGS_PER_BUCKET).bit_length()
    bucket_bits = min(max(wanted, FEWEST_BUCKET_BITS), MOST_BUCKET_BITS)
    tag_bits = 32 - SHARD_BITS - bucket_bits
    tag_type = np.uint8 if tag_bits <= 8 else np.uint16
    for s, (hashes, positions) in enumerate(shards):
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        bucket = (hashes >> np.uint32(tag_bits)) & np.uint32((1 << bucket_bits) - 1)
        edges = np.searchsorted(bucket, np.arange((1 << bucket_bits) + 1, dtype=np.uint32))
        tags = (hashes & np.uint32((1 << tag_bits) - 1)).astype(tag_type)
        save_array(folder / f"starts-{s:02}.npy", edges.astype(np.uint32))
        save_array(folder / f"tags-{s:02}.npy", tags)
        save_array(folder / f"positions-{s:02}.npy", positions[order].astype(np.uint32))
    write_landmarks(folder, n_landmarks, landmarks)
    write_subfingerprints(folder, subfingerprints)
    save_array(folder / "track_starts.npy", track_starts.astype(np.int64))
    save_array(folder / "n_frames.npy", np.int64(n_frames))
    (folder / "tracks.json").write_text(json.dumps(list(keys)), "utf-8")
    for path in (*folder.iterdir(), folder):
        sync(path)


_SHARD_EDGES = np.arange(N_SHARDS + 1, dtype=np.uint64) << np.uint64(32 - SHARD_BITS)


def _within(
    rows: NDArray[np.int64], begin: NDArray[np.int64], count: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Drop empty buckets, and the fullest ones beyond a number of postings."""
    if count.sum() > most:
        order = np.argsort(count, kind="stable")
        keep = order[np.cumsum(count[order]) <= most]
        rows, begin, count = rows[keep], begin[keep], count[keep]
    some = count > 0
    return rows[some], begin[some], count[some]


def _spread(begin: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of all elements of some ranges."""
    before = np.cumsum(count) - count
    places: NDArray[np.int64] = np.arange(int(count.sum())) + np.repeat(begin - before, count)
    return places
