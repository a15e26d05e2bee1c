"""How reliably each attribute repeats: this serves as its confidence, as nobody knows the truth.

No lawful recording comes with people's judgements of energy, danceability or happiness, so nobody
can say how accurate a value is. What can be measured is how much a value depends on the part of the
track that was analysed. A confidence is the probability that another part of the same track (half
of it, or 15 to 30 s), unchanged or through MP3 at 64 kbit/s, 3 % faster or slower, or equalised,
has a value within 10 of 100. A value that repeats may still be wrong.
"""

import math
from collections.abc import Iterable, Mapping
from operator import mul

from pipelines.analysis.records import MoodResult

NETWORKS = {"attributes": "vibenet", "tags": "musicnn-mtt"}
"""Measured for these networks; attributes from others have no confidence."""

_LEAST_SPREAD = 0.01


USUAL_SPREADS: Mapping[str, float] = {
    "acousticness": 0.106,
    "danceability": 0.039,
    "energy": 0.097,
    "instrumentalness": 0.141,
    "liveness": 0.016,
    "speechiness": 0.021,
    "valence": 0.103,
}
"""Standard deviation between the parts of a track, over all tracks."""

_WEIGHTS = (-2.26, -2.17, -1.34, -3.58)
"""Weights of `evidence`, common to all attributes, as few vary enough to be fitted alone.

Fitted like `benchmarks.attributes.repeatability` on 368 pairs of parts: from 21 tracks of game
music from 13 Debian packages, and 5 of MMA's grooves and 4 scores of OpenMSX played with the
FluidR3 soundfont.
"""


def repeatability(mood: MoodResult) -> dict[str, float]:
    """Return the confidence of each attribute, 0 to 1, to two decimals.

    Returns:
        Empty for silence, and if networks other than `NETWORKS` made the attributes. It omits
        attributes that an audience or speech has raised, see `pipelines.analysis.tags.presence`.
    """
    if any(mood.models.get(role) != one for role, one in NETWORKS.items()):
        return {}
    return {
        name: round(chance(_WEIGHTS, evidence(mood, name, USUAL_SPREADS[name])), 2)
        for name in mood.spread
    }


def evidence(mood: MoodResult, name: str, usual_spread: float) -> tuple[float, ...]:
    """Return the four values that predict whether an attribute repeats.

    The spread is averaged with the usual one, which counts as one part, since a clip of a single
    window has no spread of its own.
    """
    value, n = getattr(mood, name), mood.n_parts
    spread = math.sqrt((usual_spread**2 + (n - 1) * mood.spread[name] ** 2) / n)
    return 1.0, math.log(spread + _LEAST_SPREAD), 1 / n, value * (1 - value)


def chance(weights: Iterable[float], found: Iterable[float]) -> float:
    """Return the probability that a logistic regression predicts."""
    return 1 / (1 + math.exp(-sum(map(mul, weights, found))))
