"""The vectors of one model; if they are many, they have an index.

Invariant: vectors of different models are never in one dataset.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from pipelines.analysis.records import EMBEDDING_DIMENSION
from serve_app.library.dataset import KEY, Dataset
from serve_app.library.place import LibraryPlace

if TYPE_CHECKING:
    import lance

SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field("owner", pa.string(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), EMBEDDING_DIMENSION), nullable=False),
    ]
)
INDEX_FROM = 20_000
"""Fewer vectors than this are compared one by one, within some milliseconds."""

PARTITION_ROWS = 2048
GROWN = 4
"""Factor of growth after which the index is made anew: its partitions have grown, too."""

CODE_BITS = 1
"""Bits for each dimension in the index; its results are compared exactly."""


class Vectors(Dataset):
    """The vectors of one model."""

    def __init__(self, place: LibraryPlace, model: str) -> None:
        super().__init__(place, f"vectors/{quote(model, safe='')}", SCHEMA)

    def put(self, vectors: Mapping[str, Sequence[float]], owners: Sequence[str]) -> None:
        """Store unit vectors by track id, with the owner of each."""
        flat = pa.array(np.array(list(vectors.values()), np.float32).ravel())
        column = pa.FixedSizeListArray.from_arrays(flat, EMBEDDING_DIMENSION)
        self.upsert(pa.table([list(vectors), list(owners), column], schema=self.schema))

    def get(self, track_ids: Sequence[str]) -> dict[str, list[float]]:
        """Read the vectors of those tracks that have one."""
        if not track_ids:
            return {}
        found = self.of_tracks(track_ids, ["vector"])
        return dict(zip(found[KEY].to_pylist(), found["vector"].to_pylist(), strict=True))

    def _index(self, dataset: "lance.LanceDataset") -> None:
        super()._index(dataset)
        n_rows = dataset.count_rows()
        if n_rows < INDEX_FROM:
            return
        names = {index.name for index in dataset.describe_indices()}
        if "vector_idx" in names and n_rows < GROWN * PARTITION_ROWS * _n_partitions(dataset):
            return
        dataset.create_index(
            "vector",
            "IVF_RQ",
            metric="cosine",
            num_partitions=max(1, n_rows // PARTITION_ROWS),
            num_bits=CODE_BITS,
            replace=True,
        )


def _n_partitions(dataset: "lance.LanceDataset") -> int:
    parts = dataset.stats.index_stats("vector_idx")["indices"]
    return max(int(part["num_partitions"]) for part in parts)
