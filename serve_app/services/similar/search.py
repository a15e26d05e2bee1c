"""Searches the library around tracks, or walks from one to another; no access check, no charge.

Invariant: vectors of two models are never compared, and no recording is returned twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from serve_app.domain.errors import BadRequestError, TrackNotFoundError
from serve_app.library.measures import measures_of
from serve_app.library.query import TrackQuery
from serve_app.library.rows import tags_of
from serve_app.library.track import LibraryTrack
from serve_app.services.similar.harmony import KeyRelation, key_relation
from serve_app.services.similar.neighbours import LibraryNeighbours, Neighbour
from serve_app.services.similar.path import N_CANDIDATES, walk
from serve_app.services.similar.recordings import Recordings, distinct
from serve_app.services.similar.wanted import Wanted, in_key, middle

if TYPE_CHECKING:
    from serve_app.services.simulation.neighbours import SimulatedNeighbours

SPARE = 5
"""Results fetched beyond those wanted, to allow for seeds and for duplicate recordings."""

MAX_ASKED = 2000


@dataclass(frozen=True, slots=True)
class Similar:
    """A track that was found, and how it relates to the first seed; None without a seed.

    Attributes:
        tempo_ratio: Its tempo over the seed's.
    """

    track: LibraryTrack
    distance: float
    shared_tags: list[str]
    key_relation: KeyRelation | None
    tempo_ratio: float | None


class Search:
    """Searches what one owner sees. Its methods block."""

    def __init__(self, neighbours: "LibraryNeighbours | SimulatedNeighbours") -> None:
        self._neighbours = neighbours

    def similar(
        self,
        owner: str,
        wanted: Wanted,
        seeds: Sequence[LibraryTrack],
        unlike: Sequence[LibraryTrack] = (),
    ) -> tuple[str, list[Similar]]:
        """Find the tracks that are most like what is wanted.

        Args:
            owner: Whose tracks, with the operator's, are searched.
            wanted: What to search for.
            seeds: The tracks of the seeds in ``wanted``, in their order.
            unlike: Likewise for the tracks to be unlike.

        Returns:
            The model whose vectors were compared, and the tracks, nearest first.

        Raises:
            TrackNotFoundError: A seed has been removed in the meantime.
            BadRequestError: No such model, or it has no vector of a seed, or a seed has no key.
        """
        model = self._model(wanted.model, [*seeds, *unlike])
        likes, dislikes = self._vectors(model, seeds), self._vectors(model, unlike)
        vector = middle(wanted, likes, dislikes)
        first = likes[0].track if likes else None
        query = in_key(wanted.query, first) if wanted.in_key else wanted.query
        found = self._nearest(owner, model, vector, wanted.n, query, [*likes, *dislikes])
        return model, [compared(one, first) for one in found]

    def _nearest(
        self,
        owner: str,
        model: str,
        vector: np.ndarray,
        n: int,
        query: TrackQuery,
        seeds: Sequence[Neighbour],
    ) -> list[Neighbour]:
        """Return the nearest recordings except the seeds."""
        n_asked = n + SPARE
        while True:
            found = self._neighbours.nearest(owner, model, vector, n_asked, query)
            kept = distinct(model, found, seeds)[:n]
            if len(kept) == n or len(found) < n_asked or n_asked >= MAX_ASKED:
                return kept
            n_asked = min(4 * n_asked, MAX_ASKED)

    def walk(
        self,
        owner: str,
        ends: Sequence[LibraryTrack],
        n: int,
        model: str | None,
        query: TrackQuery,
    ) -> tuple[str, list[Similar]]:
        """Walk from one track to another over ``n`` tracks that match a query; see `similar`."""
        model = self._model(model, ends)
        start, end = self._vectors(model, ends)
        if Recordings(model, [start]).has(end):
            raise BadRequestError("from and to are the same recording; name two tracks")

        def near(vector: np.ndarray) -> list[Neighbour]:
            return self._neighbours.nearest(owner, model, vector, N_CANDIDATES + n, query)

        way = walk(model, start, end, n, near)
        before = [None, *(one.track for one in way[:-1])]
        steps = [1.0 - float(a.vector @ b.vector) for a, b in pairwise(way)]
        return model, [
            compared(Neighbour(one.track, max(0.0, distance), one.vector), previous)
            for one, distance, previous in zip(way, [0.0, *steps], before, strict=True)
        ]

    def _vectors(self, model: str, tracks: Sequence[LibraryTrack]) -> list[Neighbour]:
        stored = [track for track in tracks if not own_vector(track)]
        found = {one.track.track_id: one for one in self._neighbours.vectors(model, stored)}
        for track in tracks:
            if own := own_vector(track):
                found[track.track_id] = Neighbour(track, 0.0, np.asarray(own, np.float32))
        if any(track.track_id not in found for track in tracks):
            raise TrackNotFoundError(
                "a track that was named was removed from the library meanwhile"
            )
        return [found[track.track_id] for track in tracks]

    def _model(self, asked: str | None, seeds: Sequence[LibraryTrack]) -> str:
        """Choose the model whose vectors are compared.

        Raises:
            BadRequestError: There is no such model, or it has no vector of a seed.
        """
        known = self._neighbours.models()
        if asked is not None and asked not in known:
            raise BadRequestError(
                f"model: there are no vectors of {asked[:80]!r}; there are vectors of: "
                f"{', '.join(known) or 'none yet'}"
            )
        for model in [asked] if asked is not None else models_of(seeds[0]):
            if all(model in track.embeddings for track in seeds):
                return model
        made = "; ".join(f"{track.track_id} {', '.join(track.embeddings)}" for track in seeds)
        raise BadRequestError(
            "model: vectors of two models cannot be compared, and no one model made all that this "
            f"needs ({made}); analyse the tracks again, or name others"
        )


def own_vector(track: LibraryTrack) -> list[float]:
    """Return the vector stored in a track, as in a job's; the library keeps its own separately."""
    return [] if track.analysis is None else track.analysis.features.embedding


def models_of(track: LibraryTrack) -> list[str]:
    """Return the models that made vectors of a track, that of its last analysis first."""
    last = track.analysis.features.models.get("embedding") if track.analysis else None
    return sorted(track.embeddings, key=lambda model: (model != last, model))


def compared(found: Neighbour, to: LibraryTrack | None) -> Similar:
    """Return a found track with how it relates to another."""
    if to is None:
        return Similar(found.track, found.distance, [], None, None)
    wanted = {tag.casefold() for tag in tags_of(to)}
    shared = [tag for tag in tags_of(found.track) if tag.casefold() in wanted]
    its, other = measures_of(found.track), measures_of(to)
    relation = key_relation(its.camelot, other.camelot) if its.camelot and other.camelot else None
    ratio = its.tempo / other.tempo if its.tempo and other.tempo else None
    return Similar(found.track, found.distance, shared, relation, ratio)
