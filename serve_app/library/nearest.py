"""Finds the nearest tracks that match a query.

The index returns more rows than are wanted, the view decides which of their tracks match, and those
are compared exactly. If too few are left, the view returns every track that matches: if these are
few, all are compared; of many, the index finds the nearest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.analysis.records import EMBEDDING_DIMENSION
from serve_app.library.dataset import KEY, at_hand
from serve_app.library.numbers import Numbered, Numbers
from serve_app.library.query import TrackQuery
from serve_app.library.vectors import Vectors
from serve_app.library.view import View

CIRCLE = 2000
"""Rows from the index if a query has conditions; enough if one in twenty meets them."""

SPARE = 2
"""Rows from the index without conditions, as a multiple of those wanted: others own some."""

N_PROBES = 64
"""Partitions that are searched."""

N_PROBES_FILTERED, N_PROBES_AMONG = 96, 256
"""Likewise for tracks that meet conditions, and among all tracks of a rarer kind: each partition
has fewer of them."""

MAX_COMPARED = 500
"""The most rows that are compared one by one."""


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
    """Return how many of the index's best to compare so that the ``n`` nearest are among them.

    Among a million, this finds .988 of the 10 nearest (`afa bench similar`).
    """
    return n + 45


class Nearest:
    """Finds the nearest of one model's vectors. Safe to share between threads; blocks."""

    def __init__(self, vectors: Vectors, view: View) -> None:
        self.vectors = vectors
        self._view = view
        self._numbers = Numbers(view)

    def find(
        self, vector: Sequence[float], n: int, owners: Sequence[str], query: TrackQuery
    ) -> list[Near]:
        """Find the ``n`` nearest tracks that match a query and these owners have, nearest first.

        Raises:
            ServiceUnavailableError: The library's store is unavailable.
        """
        to = np.asarray(vector, np.float32)
        to = to / np.linalg.norm(to)
        dataset = self.vectors.latest()
        with at_hand():
            rows = self._numbers.of(dataset)
            return _compared(rows, self._chosen(rows, to, n_compared(n), owners, query), to)[:n]

    def _chosen(
        self,
        rows: Numbered,
        to: NDArray[np.float32],
        wanted: int,
        owners: Sequence[str],
        query: TrackQuery,
    ) -> list[int]:
        """Return the rows to compare."""
        circles = (CIRCLE,) if query.has_conditions else (SPARE * wanted, CIRCLE)
        n_probes = N_PROBES_FILTERED if query.has_conditions else N_PROBES
        for circle in circles:
            around = rows.numbers_at(_around(rows, to, circle, n_probes))
            meeting = self._view.meeting(around, query, owners, wanted)
            if len(meeting) == wanted:
                return rows.addresses_of(np.array(meeting))
        every = rows.addresses_of(self._view.matching(query, owners))
        if len(every) <= MAX_COMPARED:
            return every
        return _around(rows, to, wanted, N_PROBES_AMONG, every)


def _around(
    rows: Numbered,
    to: NDArray[np.float32],
    n: int,
    n_probes: int,
    among: Sequence[int] | None = None,
) -> list[int]:
    """Return about the ``n`` nearest rows, of all or among some, in about their order."""
    found = rows.dataset.scanner(
        columns=["_distance"],
        with_row_id=True,
        prefilter=True,
        row_addr_allowlist=None if among is None else _written(among),
        nearest={"column": "vector", "q": to, "k": n, "metric": "cosine", "nprobes": n_probes},
    ).to_table()
    addresses: list[int] = found["_rowid"].to_pylist()
    return addresses


def _compared(rows: Numbered, addresses: Sequence[int], to: NDArray[np.float32]) -> list[Near]:
    """Compare some rows exactly; return them nearest first."""
    if not addresses:
        return []
    read = rows.dataset.scanner(
        columns=[KEY, "vector"], row_addr_allowlist=_written(addresses)
    ).to_table()
    known = read["vector"].combine_chunks().flatten().to_numpy().reshape(-1, EMBEDDING_DIMENSION)
    distances = np.maximum(1.0 - known @ to, 0.0).tolist()
    near = map(Near, read[KEY].to_pylist(), distances, known)
    return sorted(near, key=lambda one: (one.distance, one.track_id))


def _written(addresses: Sequence[int]) -> bytes:
    """Write addresses in Lance's form."""
    from lance.dataset import serialize_row_addrs  # imports pandas, as in `Dataset`

    return serialize_row_addrs(addresses)
