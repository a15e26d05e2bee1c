"""The sub-fingerprints of a segment's tracks, for comparing a clip with all of them.

Files: ``subfingerprints.npy`` (uint64 ``[S]``, track after track), 64 bytes a second;
``coarse_subfingerprints.npy`` (derived from them for a first look at a large index, in the same
form, 21 bytes a second); and ``subfingerprint_starts.npy`` (int64 ``[tracks + 1]``).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.fingerprint.coarse import coarsen, count
from serve_app.providers.fingerprints.mapped import map_array, new_array, save_array


class KeptSubfingerprints:
    """Reads sub-fingerprints, memory-mapped.

    Attributes:
        rows: uint64 ``[S]``, of all tracks.
        starts: int64 ``[tracks + 1]``, the index where each track begins, and the end.
        coarse: uint64, of all tracks; see `models.fingerprint.coarse`.
        coarse_starts: Like `starts`, for the coarse ones.
    """

    def __init__(self, folder: Path) -> None:
        self.rows: NDArray[np.uint64]
        self.coarse: NDArray[np.uint64]
        self.rows, pages = map_array(folder, "subfingerprints")
        self.coarse, coarse_pages = map_array(folder, "coarse_subfingerprints")
        self.pages = [pages, coarse_pages]
        self.starts: NDArray[np.int64] = map_array(folder, "subfingerprint_starts")[0].copy()
        lengths = np.diff(self.starts, prepend=0)
        if lengths.sum() != len(self.rows) or (lengths < 0).any():
            raise ValueError(f"{folder / 'subfingerprint_starts.npy'} leads nowhere")
        self.coarse_starts = _starts(count(lengths[1:]))

    def of(self, track: int) -> NDArray[np.uint64]:
        """Return one track's sub-fingerprints."""
        return self.rows[self.starts[track] : self.starts[track + 1]]


def write_subfingerprints(folder: Path, tracks: Sequence[NDArray[np.uint64]]) -> None:
    """Write the sub-fingerprints of tracks, in order."""
    lengths = np.array([len(rows) for rows in tracks], np.int64)
    save_array(folder / "subfingerprint_starts.npy", _starts(lengths))
    _write(folder / "subfingerprints.npy", tracks, lengths)
    _write(folder / "coarse_subfingerprints.npy", map(coarsen, tracks), count(lengths))


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where tracks of these lengths start, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _write(path: Path, tracks: Iterable[NDArray[np.uint64]], lengths: NDArray[np.int64]) -> None:
    starts = _starts(lengths)
    kept = new_array(path, np.uint64, int(starts[-1]))
    for rows, start in zip(tracks, starts, strict=False):
        kept[start : start + len(rows)] = rows
