"""The library as a search sees it: tracks with their vectors from one model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serve_app.domain.identity import TrackIdentity
from serve_app.library.library import Library
from serve_app.library.query import TrackQuery
from serve_app.library.rows import content_term
from serve_app.library.track import OPERATOR, LibraryTrack
from serve_app.providers.identities.resolver import visible_to


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A track, its vector and its distance from what was asked for.

    Attributes:
        distance: Cosine distance, 0 the same, 2 opposite.
        vector: float32 ``[768]``, norm 1.
    """

    track: LibraryTrack
    distance: float
    vector: np.ndarray


class LibraryNeighbours:
    """Reads the library for one owner at a time. Its methods block."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def models(self) -> list[str]:
        """Return the models that the library has vectors of."""
        return self._library.models()

    def of_identity(self, owner: str, identity: TrackIdentity) -> LibraryTrack | None:
        """Return the track that an identity is, the owner's before the operator's."""
        if identity.library_id is not None:
            return self._seen_by(owner, [identity.library_id])
        ids = [
            hit.track_id
            for one in identity.ids()
            for hit in self._library.by_id(one, visible_to(owner))
        ]
        return self._seen_by(owner, ids)

    def of_audio(self, owner: str, sha256: str) -> LibraryTrack | None:
        """Return the track that has a file of these bytes."""
        for whose in visible_to(owner):
            found = self._library.of_term(content_term(sha256), whose)
            if found:
                return found[0]
        return None

    def vectors(self, model: str, tracks: Sequence[LibraryTrack]) -> list[Neighbour]:
        """Return those of some tracks that have a vector of a model, in their order."""
        known = self._library.vectors(model).get([track.track_id for track in tracks])
        return [
            Neighbour(track, 0.0, np.asarray(known[track.track_id], np.float32))
            for track in tracks
            if track.track_id in known
        ]

    def nearest(
        self, owner: str, model: str, vector: np.ndarray, n: int, query: TrackQuery
    ) -> list[Neighbour]:
        """Return the ``n`` nearest tracks that match a query and the owner sees, nearest first."""
        near = self._library.nearest(model, vector.tolist(), n, visible_to(owner), query)
        tracks = [(self._seen_by(owner, [one.track_id]), one) for one in near]
        return [
            Neighbour(track, one.distance, one.vector) for track, one in tracks if track is not None
        ]

    def _seen_by(self, owner: str, track_ids: Sequence[str]) -> LibraryTrack | None:
        tracks = [self._library.get(one) for one in track_ids]
        seen = [one for one in tracks if one is not None and one.owner in visible_to(owner)]
        own = [one for one in seen if one.owner != OPERATOR]
        return next(iter(own or seen), None)
