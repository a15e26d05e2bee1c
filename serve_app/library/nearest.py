"""The nearest tracks that a query asks for.

The index knows nothing of tempos, keys and tags, which change with the tracks; the view does. So
the index names more than are wanted, the view says which of them will do, and those are compared
exactly. Where too few are left the circle is widened, and in the end everything that the query asks
for is compared. A query that asks for nothing needs no view.
"""

from collections.abc import Sequence

from serve_app.library.query import TrackQuery
from serve_app.library.vectors import Near, Vectors, n_compared
from serve_app.library.view import View

CIRCLES = (8, 80)
"""How many times as many as are compared the index names, in turn, until enough meet the query."""

MAX_COMPARED = 50_000
"""So many are compared one by one, within a second or two."""


def nearest(
    vectors: Vectors,
    view: View,
    vector: Sequence[float],
    n: int,
    owners: Sequence[str],
    query: TrackQuery,
) -> list[Near]:
    """Find the ``n`` nearest tracks that a query asks for and these owners have, nearest first."""
    wanted = n_compared(n)
    if query.asks_nothing:
        return vectors.near(vector, wanted, owners)[:n]
    for circle in CIRCLES:
        around = vectors.around(vector, circle * wanted, owners)
        found = view.meeting(around, query, owners)[:wanted]
        if len(found) == wanted:
            break
    else:
        found = view.matching(query, owners, MAX_COMPARED)
    return vectors.compare(vector, found)[:n]
