"""How surely each attribute repeats: what stands for its confidence where nobody knows the truth.

Of energy, danceability or happiness no lawful recording has a judgement by people, so that nobody
can say how right a value is. How far it hangs on the part of the track that was heard can be
measured: a confidence is the probability that another part of the same track (its half, or 15 to
30 s of it), as it is or through MP3 at 64 kbit/s, 3 % faster or slower, or equalised, has a value
within 10 of 100. A value that repeats may still be wrong.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul

from pipelines.analysis.records import MoodResult

NETWORKS = {"attributes": "vibenet", "tags": "musicnn-mtt"}
"""Of these it was measured; attributes that others make have no confidence."""

_LEAST_SPREAD = 0.01


@dataclass(frozen=True, slots=True)
class Fit:
    """A logistic regression of one attribute.

    Attributes:
        usual_spread: Standard deviation between the parts of a track, over all tracks.
    """

    usual_spread: float
    offset: float = 0.0
    of_spread: float = 0.0
    of_few_parts: float = 0.0
    of_the_middle: float = 0.0

    def evidence(self, mood: MoodResult, name: str) -> tuple[float, float, float, float]:
        """Give what the weights belong to, in their order.

        The spread is weighed with the usual one, which counts as one part: a clip of a single
        window has no spread of its own.
        """
        value, n = getattr(mood, name), mood.n_parts
        squares = self.usual_spread**2 + (n - 1) * mood.spread[name] ** 2
        spread = math.sqrt(squares / n)
        return 1.0, math.log(spread + _LEAST_SPREAD), 1 / n, value * (1 - value)

    def confidence(self, mood: MoodResult, name: str) -> float:
        """Give the probability that the attribute repeats."""
        weights = (self.offset, self.of_spread, self.of_few_parts, self.of_the_middle)
        log_odds = sum(map(mul, weights, self.evidence(mood, name)))
        return 1 / (1 + math.exp(-log_odds))


_FITS: Mapping[str, Fit] = {
    "acousticness": Fit(0.2, -1, -1, -1, 0),
    "danceability": Fit(0.2, -1, -1, -1, 0),
    "energy": Fit(0.2, -1, -1, -1, 0),
    "instrumentalness": Fit(0.2, -1, -1, -1, 0),
    "liveness": Fit(0.2, -1, -1, -1, 0),
    "speechiness": Fit(0.2, -1, -1, -1, 0),
    "valence": Fit(0.2, -1, -1, -1, 0),
}


def repeatability(mood: MoodResult) -> dict[str, float]:
    """Give the confidence of each attribute, 0 to 1, in two decimals.

    Returns:
        Empty for silence, and where other networks than `NETWORKS` made the attributes; without
        what an audience or speech has raised, see `pipelines.analysis.tags.presence`.
    """
    if not mood.n_parts or any(mood.models.get(role) != one for role, one in NETWORKS.items()):
        return {}
    return {
        name: round(fit.confidence(mood, name), 2)
        for name, fit in _FITS.items()
        if name in mood.spread
    }
