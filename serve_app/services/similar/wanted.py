"""What to search for: tracks to be like and unlike, or a vector; and the resulting point."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from serve_app.domain.errors import BadRequestError
from serve_app.library.measures import measures_of
from serve_app.library.query import TrackQuery
from serve_app.library.track import LibraryTrack
from serve_app.services.similar.harmony import compatible_keys
from serve_app.services.similar.neighbours import Neighbour

AWAY = 0.5
"""Weight of what is not wanted, which is subtracted; what is wanted has weight one.

References:
    J. Rocchio, "Relevance feedback in information retrieval" (1971).
"""


@dataclass(frozen=True, slots=True)
class Seed:
    """A track that others are to be like, or unlike; one of the three attributes names it.

    Attributes:
        track: An identifier in any form.
        asset_id: An asset of the caller.
        job_id: An analysis of the caller, whose result includes the embedding.
    """

    track: str | None = None
    asset_id: str | None = None
    job_id: str | None = None
    weight: float = 1.0

    @property
    def name(self) -> str:
        """How the caller named it."""
        return self.track or self.asset_id or self.job_id or ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to search for.

    Attributes:
        seeds: What results are to be like.
        unlike: What results are to be unlike.
        vector: A vector made by ``model``, instead of seeds.
        model: Whose vectors are compared; None, if there are seeds: the model of the first one's
            last analysis if it made all that is needed, else another that did.
        in_key: Whether keys must mix with the first seed's on the Camelot wheel.
    """

    n: int
    seeds: Sequence[Seed] = ()
    unlike: Sequence[Seed] = ()
    vector: Sequence[float] | None = None
    model: str | None = None
    query: TrackQuery = field(default_factory=TrackQuery)
    in_key: bool = False


def middle(wanted: Wanted, likes: Sequence[Neighbour], dislikes: Sequence[Neighbour]) -> np.ndarray:
    """Return the unit vector to search around: the seeds' mean, moved away from what is not wanted.

    Raises:
        BadRequestError: What is wanted and what is not cancel out.
    """
    if wanted.vector is not None:
        vector = np.asarray(wanted.vector, np.float64)
    else:
        vector = mean_of(likes, wanted.seeds)
    if dislikes:
        vector = vector / (np.linalg.norm(vector) or 1.0)
        vector = vector - AWAY * mean_of(dislikes, wanted.unlike)
    norm = np.linalg.norm(vector)
    if norm < 1e-6:
        raise BadRequestError("what you want and what you do not want cancel out; leave some out")
    return np.asarray(vector / norm, np.float32)


def mean_of(tracks: Sequence[Neighbour], seeds: Sequence[Seed]) -> np.ndarray:
    """Return the mean of some vectors, weighted by the seeds' weights."""
    weights = [seed.weight for seed in seeds]
    return np.average([one.vector for one in tracks], axis=0, weights=weights)


def in_key(query: TrackQuery, track: LibraryTrack | None) -> TrackQuery:
    """Narrow a query to the keys that mix with a track's.

    Raises:
        BadRequestError: There is no track, or it has no key.
    """
    key = None if track is None else measures_of(track).camelot
    if key is None:
        raise BadRequestError(
            "compatible: the first seed has no key; name the keys with `key` instead"
        )
    return replace(query, keys=compatible_keys(key))
