"""The sub-fingerprints of a segment's tracks, 64 bytes a second, for comparing a clip with all.

Files: ``subfingerprints.npy`` (uint64 ``[S]``, track after track) and ``subfingerprint_starts.npy``
(int64 ``[tracks + 1]``).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serve_app.providers.fingerprints.mapped import map_array


class KeptSubfingerprints:
    """Reads them, memory-mapped.

    Attributes:
        rows: uint64 ``[S]``, of all tracks.
        starts: int64 ``[tracks + 1]``, where each track begins, and the end.
    """

    def __init__(self, folder: Path) -> None:
        self.rows: NDArray[np.uint64]
        self.rows, self.pages = map_array(folder, "subfingerprints")
        self.starts: NDArray[np.int64] = map_array(folder, "subfingerprint_starts")[0].copy()

    def of(self, track: int) -> NDArray[np.uint64]:
        """Give one track's."""
        return self.rows[self.starts[track] : self.starts[track + 1]]


def write_subfingerprints(folder: Path, tracks: Sequence[NDArray[np.uint64]]) -> None:
    """Write those of tracks, in order."""
    ends = np.cumsum([len(rows) for rows in tracks], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    kept = np.lib.format.open_memmap(
        folder / "subfingerprints.npy", "w+", np.uint64, (int(starts[-1]),)
    )
    for rows, start in zip(tracks, starts, strict=False):
        kept[start : start + len(rows)] = rows
    np.save(folder / "subfingerprint_starts.npy", starts)
