"""How reliably each attribute repeats: this stands for its confidence, as nobody knows the truth.

No lawful recording comes with people's judgements of energy, danceability or happiness, so nobody
can say how right a value is. What can be measured is how far a value depends on the part of the
track that was analysed. A confidence is the probability that another part of the same track (its
half, or 15 to 30 s of it), as it is or through MP3 at 64 kbit/s, 3 % faster or slower, or
equalised, has a value within 10 of 100. A value that repeats may still be wrong.
"""

import math
from collections.abc import Iterable, Mapping
from operator import mul

from pipelines.analysis.records import MoodResult

NETWORKS = {"attributes": "vibenet", "tags": "musicnn-mtt"}
"""Of these it was measured; attributes that others make have no confidence."""

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
"""Of `evidence`; for all attributes together, as few attributes vary enough to be fitted alone.

Fitted as `benchmarks.attributes.repeatability` does on 368 pairs of parts: of 21 tracks of game
music of 13 Debian packages, and of 5 of MMA's grooves and 4 scores of OpenMSX in FluidR3's
soundfont.
"""


def repeatability(mood: MoodResult) -> dict[str, float]:
    """Return the confidence of each attribute, 0 to 1, in two decimals.

    Returns:
        Empty for silence, and where other networks than `NETWORKS` made the attributes; without
        what an audience or speech has raised, see `pipelines.analysis.tags.presence`.
    """
    if any(mood.models.get(role) != one for role, one in NETWORKS.items()):
        return {}
    return {
        name: round(chance(_WEIGHTS, evidence(mood, name, USUAL_SPREADS[name])), 2)
        for name in mood.spread
    }


def evidence(mood: MoodResult, name: str, usual_spread: float) -> tuple[float, ...]:
    """Return what speaks for an attribute to repeat: the same four things of each.

    The spread is weighed with the usual one, which counts as one part: a clip of a single window
    has no spread of its own.
    """
    value, n = getattr(mood, name), mood.n_parts
    spread = math.sqrt((usual_spread**2 + (n - 1) * mood.spread[name] ** 2) / n)
    return 1.0, math.log(spread + _LEAST_SPREAD), 1 / n, value * (1 - value)


def chance(weights: Iterable[float], found: Iterable[float]) -> float:
    """Return the probability of a logistic regression."""
    return 1 / (1 + math.exp(-sum(map(mul, weights, found))))
