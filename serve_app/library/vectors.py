"""The vectors that one model gave: nearest neighbours, exact for few tracks, indexed for many.

Invariant: vectors of different models never lie in one dataset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
"""Fewer vectors are compared one by one, within some milliseconds."""

PARTITION_ROWS = 2048
GROWN = 4
"""An index of so many times its first rows is made anew: its partitions have grown too."""

N_PROBES = 64
"""Partitions that are looked into."""

CODE_BITS = 1
"""Of each dimension in the index; what it finds is compared exactly."""

READ_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Near:
    """A track that was compared.

    Attributes:
        distance: Cosine distance, 0 the same, 2 opposite.
        vector: float32 ``[768]``, norm 1.
    """

    track_id: str
    distance: float
    vector: np.ndarray


def n_compared(n: int) -> int:
    """How many of the index' best are compared so that the ``n`` nearest are among them.

    Among a million, of the 10 nearest all are among its best 60, of the 40 nearest .996 among 120.
    """
    return 2 * n + 60


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

    def nearest(
        self, vector: Sequence[float], n: int, owners: Sequence[str]
    ) -> list[tuple[str, float]]:
        """Find the ``n`` nearest tracks of some owners.

        Returns:
            Track id and cosine distance, the nearest first.
        """
        near = self.near(vector, n_compared(n), owners)
        return [(one.track_id, one.distance) for one in near[:n]]

    def near(self, vector: Sequence[float], n: int, owners: Sequence[str]) -> list[Near]:
        """Compare the ``n`` tracks that the index finds nearest, exactly; the nearest first."""
        # Lance would read the vectors twice if it were to compare them itself.
        return _compared(vector, self._search(vector, n, owners, [KEY, "vector"]))

    def around(self, vector: Sequence[float], n: int, owners: Sequence[str]) -> list[str]:
        """Name about the ``n`` nearest tracks of some owners, in about their order."""
        names: list[str] = self._search(vector, n, owners, [KEY])[KEY].to_pylist()
        return names

    def _search(
        self,
        vector: Sequence[float],
        n: int,
        owners: Sequence[str],
        columns: Sequence[str],
    ) -> pa.Table:
        whose = ", ".join("'" + owner.replace("'", "''") + "'" for owner in owners)
        return self.read(
            columns=[*columns, "_distance"],
            filter=f"owner IN ({whose})",
            prefilter=True,
            nearest={
                "column": "vector",
                "q": np.asarray(vector, np.float32),
                "k": n,
                "metric": "cosine",
                "nprobes": N_PROBES,
            },
        )

    def compare(self, vector: Sequence[float], track_ids: Sequence[str]) -> list[Near]:
        """Compare some tracks, exactly; the nearest first."""
        near: list[Near] = []
        for start in range(0, len(track_ids), READ_AT_ONCE):
            read = self.of_tracks(track_ids[start : start + READ_AT_ONCE], ["vector"])
            near += _compared(vector, read)
        return sorted(near, key=_by_distance)

    def _index(self, dataset: "lance.LanceDataset") -> None:
        super()._index(dataset)
        n_rows = dataset.count_rows()
        if n_rows < INDEX_FROM:
            return
        names = {index.name for index in dataset.describe_indices()}
        if "owner_idx" not in names:
            dataset.create_scalar_index("owner", "BITMAP")
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


def _compared(vector: Sequence[float], rows: pa.Table) -> list[Near]:
    to = np.asarray(vector, np.float32)
    to = to / np.linalg.norm(to)
    known = rows["vector"].combine_chunks().flatten().to_numpy()
    known = known.reshape(-1, EMBEDDING_DIMENSION)
    distances = np.maximum(1.0 - known @ to, 0.0).tolist()
    near = map(Near, rows[KEY].to_pylist(), distances, known)
    return sorted(near, key=_by_distance)


def _by_distance(one: Near) -> tuple[float, str]:
    return one.distance, one.track_id


def _n_partitions(dataset: "lance.LanceDataset") -> int:
    parts = dataset.stats.index_stats("vector_idx")["indices"]
    return max(int(part["num_partitions"]) for part in parts)
