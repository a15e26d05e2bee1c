"""The nearest tracks that a query asks for.

The index knows nothing of tempos, keys and tags, which change with the tracks; the view does. So
the index gives more than is wanted, the view says which of them will do, and those are compared
exactly. Where too few are left the circle is widened, and in the end everything that the query asks
for is compared.
"""

from collections.abc import Sequence

from serve_app.library.query import TrackQuery
from serve_app.library.vectors import Near, Vectors, n_compared
from serve_app.library.view import View

WIDE = 20
"""How many times as many as are compared at first are asked for then, without comparing."""

ENOUGH = 5
"""How many times as many as are wanted must be left by the filter: the index' order is rough."""

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
    near = vectors.near(vector, 2 * wanted, owners)
    meeting = set(view.meeting([one.track_id for one in near], query, owners))
    if len(meeting) >= ENOUGH * n:
        return [one for one in near if one.track_id in meeting][:n]
    around = vectors.around(vector, 2 * wanted * WIDE, owners)
    found = view.meeting(around, query, owners)[:wanted]
    if len(found) < ENOUGH * n:
        found = view.matching(query, owners, MAX_COMPARED)
    return vectors.compare(vector, found)[:n]
