"""Recognises tracks that are the same recording, so that an answer lists it once."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from serve_app.domain.track_ids import Platform
from serve_app.library.measures import measures_of
from serve_app.library.spelling import text_key
from serve_app.library.track import LibraryTrack
from serve_app.services.similar.neighbours import Neighbour

SAME_SOUND = 1e-3
"""Cosine distance in the space of a model that comes with afa: of 259 tracks of game music, 11
pairs are within it in musicnn's, each of one recording; no other is within five times as much."""
OURS = frozenset(
    {
        *("musicnn-msd-768", "efficientat-mn04", "afa-embed-1", "ast-audioset"),
        *("maest-30s", "mert-95m", "ced-base", "clap"),
    }
)
SAME_VECTOR = 1e-6
"""Cosine distance in the space of an operator's own model, not measured: the same samples."""

SAME_LENGTH_S = 0.5


class Recordings:
    """Recordings seen so far.

    Args:
        model: The model whose vectors are compared.
        seen: Recordings to begin with.
    """

    def __init__(self, model: str, seen: Iterable[Neighbour]) -> None:
        self._same_sound = SAME_SOUND if model in OURS else SAME_VECTOR
        self._names: set[str] = set()
        self._sounds: list[tuple[float, np.ndarray]] = []
        for one in seen:
            self.add(one)

    def add(self, one: Neighbour) -> None:
        """Remember a recording."""
        self._names.update(names_of(one.track))
        duration_s = measures_of(one.track).duration_s
        if duration_s is not None:
            self._sounds.append((duration_s, one.vector))

    def has(self, one: Neighbour) -> bool:
        """Return whether it was seen: by track, ISRC, MBID or names, or by sound and length."""
        if not self._names.isdisjoint(names_of(one.track)):
            return True
        duration_s = measures_of(one.track).duration_s
        return duration_s is not None and any(
            abs(known_s - duration_s) <= SAME_LENGTH_S
            and 1.0 - float(known @ one.vector) <= self._same_sound
            for known_s, known in self._sounds
        )


def distinct(model: str, found: Sequence[Neighbour], seen: Iterable[Neighbour]) -> list[Neighbour]:
    """Return the tracks that are not in ``seen``, each recording once, in their order."""
    recordings = Recordings(model, seen)
    kept = []
    for one in found:
        if not recordings.has(one):
            recordings.add(one)
            kept.append(one)
    return kept


def names_of(track: LibraryTrack) -> Iterator[str]:
    """Yield names, any of which identifies another track of the same recording."""
    yield track.track_id
    for platform in (Platform.ISRC, Platform.MBID):
        known = track.identity.id_of(platform)
        if known is not None:
            yield f"{platform}:{known}"
    if track.identity.artist and track.identity.title:
        yield f"name:{text_key(track.identity.artist, track.identity.title)}"
