"""The library for test keys: every track is in it, and the same few tracks are close to any."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import MAXYEAR, UTC, datetime
from functools import cache

import numpy as np

from serve_app.domain.identity import TrackIdentity
from serve_app.domain.track_ids import LIBRARY_PREFIX, Platform, TrackId
from serve_app.domain.ulid import LENGTH
from serve_app.library.measures import measures_of
from serve_app.library.query import OCTAVES, TrackQuery
from serve_app.library.rows import tags_of
from serve_app.library.track import Analysis, LibraryTrack
from serve_app.services.lookup.feature_cache import track_key
from serve_app.services.similar.neighbours import Neighbour
from serve_app.services.simulation.features import MODEL_ID, simulated_features
from serve_app.services.simulation.resolver import SimulatedResolver

N_TRACKS = 200
FIRST_YEAR = 1960
ADDED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedNeighbours:
    """Answers as `serve_app.services.similar.neighbours.LibraryNeighbours` does."""

    def models(self) -> list[str]:
        """Return the one model used for all simulated vectors."""
        return [MODEL_ID]

    def of_identity(self, owner: str, identity: TrackIdentity) -> LibraryTrack:
        """Return the track that an identity is."""
        del owner  # the same for all
        return simulated_track(track_key(identity), identity)

    def of_audio(self, owner: str, sha256: str) -> LibraryTrack:
        """Return the track that has a file of these bytes."""
        del owner  # the same for all
        return simulated_track(sha256, TrackIdentity(source=MODEL_ID))

    def vectors(self, model: str, tracks: Sequence[LibraryTrack]) -> list[Neighbour]:
        """Return the tracks with their vectors."""
        del model  # there is one
        return [_neighbour(track) for track in tracks]

    def nearest(
        self, owner: str, model: str, vector: np.ndarray, n: int, query: TrackQuery
    ) -> list[Neighbour]:
        """Return the ``n`` nearest of a few tracks that match a query, nearest first."""
        del owner, model  # the same for all
        found = [
            replace(one, distance=1.0 - float(one.vector @ vector))
            for one in _shelf()
            if meets(query, one.track)
        ]
        return sorted(found, key=lambda one: one.distance)[:n]


class SimulatedWords:
    """Answers as `serve_app.services.similar.words.Words` does."""

    async def vector(self, text: str, model: str | None) -> tuple[str, list[float]]:
        """Return a vector that depends only on the text."""
        return model or MODEL_ID, simulated_features(text).embedding


def meets(query: TrackQuery, track: LibraryTrack) -> bool:
    """Return whether a track matches a query, as the library's view does, ignoring its text."""
    measures = measures_of(track)
    tempo, year = measures.tempo or 0.0, track.identity.year or 0
    tempos = [tempo / octave for octave in (OCTAVES if query.tempo_octaves else (1.0,))]
    low, high = query.tempo_min or 0.0, query.tempo_max or math.inf
    tags = {tag.casefold() for tag in tags_of(track)}
    return (
        any(low <= one <= high for one in tempos)
        and (query.year_min or 0) <= year <= (query.year_max or MAXYEAR)
        and (not query.keys or measures.camelot in query.keys)
        and tags.issuperset(tag.casefold() for tag in query.tags)
    )


def simulated_track(seed: str, identity: TrackIdentity) -> LibraryTrack:
    """Return a track of the library and its analysis, which depend only on ``seed``."""
    track_id = LIBRARY_PREFIX + hashlib.sha256(seed.encode()).hexdigest()[:LENGTH]
    features = simulated_features(track_id).outline()
    return LibraryTrack(
        track_id,
        identity,
        analysis=Analysis(features, MODEL_ID, ADDED_AT),
        embeddings=(MODEL_ID,),
        added_at=ADDED_AT,
        changed_at=ADDED_AT,
        revision=1,
    )


def _neighbour(track: LibraryTrack) -> Neighbour:
    vector = np.asarray(simulated_features(track.track_id).embedding, np.float32)
    return Neighbour(track, 0.0, vector)


@cache
def _shelf() -> list[Neighbour]:
    """Return the tracks that are close to any track."""
    resolver = SimulatedResolver()
    codes = [TrackId(Platform.ISRC, f"QZTST{number:07d}") for number in range(N_TRACKS)]
    known = [identity for code in codes if (identity := resolver.at_hand(code)) is not None]
    dated = [
        replace(identity, year=FIRST_YEAR + number % 60) for number, identity in enumerate(known)
    ]
    return [_neighbour(simulated_track(track_key(one), one)) for one in dated]
