"""A path from one track to another on which sound, tempo and key change little at a time.

The straight path follows the great circle between the two vectors. At each of its steps the tracks
nearest to it are candidates. Of the paths through these, the one is chosen whose steps and whose
distance from the straight path cost least:

    step(a, b) = sound(a, b) + TEMPO · tempo(a, b) + KEY · key(a, b)
    path = Σ step + ASIDE · Σ sound(track, straight path)

``sound`` is the cosine distance, ``tempo`` the octaves between the tempos (half and double count as
one), ``key`` the steps on the Camelot wheel as a fraction of the most; an unknown value costs half
of the most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from serve_app.library.measures import Measures, measures_of
from serve_app.services.similar.harmony import key_distance, tempo_distance
from serve_app.services.similar.neighbours import Neighbour
from serve_app.services.similar.recordings import Recordings

TEMPO = 1.0
"""Weight against sound: a change of 6 %, a pitch fader's range, costs a twelfth of an octave."""

KEY = 0.3
"""Weight against sound: a step on the wheel costs 0.04, a usual distance between neighbours."""

ASIDE = 0.5
UNKNOWN_TEMPO, UNKNOWN_KEY = 0.25, 0.5

N_CANDIDATES = 24
WIDTH = 48
"""Paths followed at a time."""


@dataclass(frozen=True, slots=True)
class _Way:
    cost: float
    tracks: tuple[Neighbour, ...]


def walk(
    model: str,
    start: Neighbour,
    end: Neighbour,
    n: int,
    near: Callable[[np.ndarray], Sequence[Neighbour]],
) -> list[Neighbour]:
    """Find a path of ``n`` tracks, including both ends.

    Args:
        model: The model whose vectors are compared.
        start: First track.
        end: Last track, another recording.
        n: Number of tracks, at least 2.
        near: Returns the tracks nearest to a vector.

    Returns:
        The tracks, no recording twice; fewer if there are not enough.
    """
    ways = [_Way(0.0, (start,))]
    for straight in waypoints(start.vector, end.vector, n):
        candidates = near(straight)
        longer = [
            _Way(way.cost + step(way.tracks[-1], one) + aside(one, straight), (*way.tracks, one))
            for way in ways
            for one in unseen(model, candidates, (*way.tracks, end))
        ]
        ways = sorted(longer, key=lambda way: way.cost)[:WIDTH] or ways
    best = min(ways, key=lambda way: way.cost + step(way.tracks[-1], end))
    return [*best.tracks, end]


def unseen(
    model: str, candidates: Sequence[Neighbour], seen: Sequence[Neighbour]
) -> list[Neighbour]:
    """Return the candidates that are none of the recordings in ``seen``."""
    recordings = Recordings(model, seen)
    return [one for one in candidates if not recordings.has(one)]


def step(one: Neighbour, other: Neighbour) -> float:
    """Return the cost of going from one track to another."""
    a, b = measures_of(one.track), measures_of(other.track)
    sound = 1.0 - float(one.vector @ other.vector)
    return sound + TEMPO * _tempo(a, b) + KEY * _key(a, b)


def aside(one: Neighbour, straight: np.ndarray) -> float:
    """Return the cost of being off the straight path."""
    return ASIDE * (1.0 - float(one.vector @ straight))


def waypoints(start: np.ndarray, end: np.ndarray, n: int) -> list[np.ndarray]:
    """Return the ``n - 2`` points that divide the great circle between two unit vectors evenly."""
    angle = math.acos(float(np.clip(start @ end, -1.0, 1.0)))
    points = []
    for number in range(1, n - 1):
        part = number / (n - 1)
        point = math.sin((1 - part) * angle) * start + math.sin(part * angle) * end
        norm = float(np.linalg.norm(point))
        points.append(point / norm if norm > 0 else start)
    return points


def _tempo(a: Measures, b: Measures) -> float:
    return tempo_distance(a.tempo, b.tempo) if a.tempo and b.tempo else UNKNOWN_TEMPO


def _key(a: Measures, b: Measures) -> float:
    return key_distance(a.camelot, b.camelot) if a.camelot and b.camelot else UNKNOWN_KEY
