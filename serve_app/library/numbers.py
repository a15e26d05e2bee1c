"""Maps rows of a model's vectors to tracks of the view, in memory.

The vectors know nothing about tempos, keys and tags, which change with the tracks; the view does.
The view's number of a track and the address of a Lance row are both small, and a row never moves,
so each fragment is read once.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from serve_app.library.dataset import KEY
from serve_app.library.view import View

if TYPE_CHECKING:
    import lance

FRAGMENT_BITS = 32
"""An address is a fragment's number, followed by these bits for the row's place in it."""

PLACE = 2**FRAGMENT_BITS - 1
UNKNOWN = 0
"""The number of a track that the view does not know; its numbers begin at 1."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """One version of a dataset, with the tracks of its rows.

    Attributes:
        by_fragment: For each fragment, the tracks' numbers by place.
        addresses: For each track's number, the address of its row; -1 if it has none. The row may
            have been removed; Lance skips it.
    """

    dataset: "lance.LanceDataset"
    by_fragment: Mapping[int, NDArray[np.int32]]
    addresses: NDArray[np.int64]

    def numbers_at(self, addresses: Sequence[int]) -> list[int]:
        """Return the numbers of the tracks of some rows, in their order."""
        return [int(self.by_fragment[one >> FRAGMENT_BITS][one & PLACE]) for one in addresses]

    def addresses_of(self, numbers: NDArray[np.int64]) -> list[int]:
        """Return the row addresses of those tracks that have one."""
        within = numbers[numbers < len(self.addresses)]
        known: list[int] = self.addresses[within][self.addresses[within] >= 0].tolist()
        return known


class Numbers:
    """Numbers the rows of one dataset. Safe to share between threads."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._last: Numbered | None = None
        self._life = ""
        self._seen = 0
        self._partly: set[int] = set()

    def of(self, dataset: "lance.LanceDataset") -> Numbered:
        """Number the rows of a version."""
        with self._lock:
            life, seen = self._view.life, self._view.version
            last = self._last if life == self._life else None
            again = self._partly if seen != self._seen else set()
            if last is None or again or last.dataset.version != dataset.version:
                self._last = last = self._brought_up(last, dataset, again)
                self._life, self._seen = life, seen
            return last

    def _brought_up(
        self, last: Numbered | None, dataset: "lance.LanceDataset", again: set[int]
    ) -> Numbered:
        known = {} if last is None else last.by_fragment
        addresses = np.full(1, -1, np.int64) if last is None else last.addresses.copy()
        by_fragment: dict[int, NDArray[np.int32]] = {}
        partly: set[int] = set()
        fragments = {one.fragment_id: one for one in dataset.get_fragments()}
        # In the order they were written: of two rows of one track the later one counts.
        for name, fragment in sorted(fragments.items()):
            if name in known and name not in again:
                by_fragment[name] = known[name]
                partly |= {name} & self._partly
                continue
            rows = fragment.to_table(columns=[KEY], with_row_address=True)
            at = rows["_rowaddr"].to_numpy().astype(np.int64)
            numbers = np.array(self._view.numbers(rows[KEY].to_pylist()), np.int64)
            by_fragment[name] = np.full(fragment.physical_rows, UNKNOWN, np.int32)
            by_fragment[name][at & PLACE] = numbers
            room = int(numbers.max(initial=0)) + 1 - len(addresses)
            addresses = np.pad(addresses, (0, max(0, room)), constant_values=-1)
            addresses[numbers] = at
            addresses[UNKNOWN] = -1
            if (numbers == UNKNOWN).any():
                partly.add(name)
        self._partly = partly
        return Numbered(dataset, by_fragment, addresses)
