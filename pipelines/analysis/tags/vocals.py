"""Whether anybody sings or speaks: an attribute network's answers weighed with a tagger's voices.

VibeNet alone tells voices from instruments, but not on the scale's terms: songs with a full band
lie at .5-.8, instrumental music at .7-.95. A tagger hears voices better; the two together are
calibrated so that .5 divides. And where nobody is heard there is no speech: hiss, rain and
scratched drum loops are not words.
"""

import math

from torch import Tensor

from pipelines.analysis.tags.tagging import Vocabulary, scores

VOICE_TAGS = frozenset(
    (
        *("vocal", "vocals", "singing", "voice", "rap", "a cappella", "speech"),
        *("female", "woman", "female vocal", "female vocals", "female voice"),
        *("male", "man", "male vocal", "male vocals", "male voice"),
        *("female vocalist", "female vocalists", "male vocalists"),
    )
)
"""Tags that say that somebody sings or speaks words (choirs' ohs and ahs count as instruments)."""

# Logistic regression over 140 stretches of 20 s: 35 instrumental clips of the evaluation set, alone
# and with each of three singers (a woman's and a man's solo of vocadito, a rock singer's stem) at
# -6 to +3 dB against the band. Singers and clips left out in turn, area under the ROC curve: .93
# together, .80 VibeNet alone, .94 the tagger alone; under .5 lie 86 % of the sung stretches, above
# it 89 % of the instrumental ones.
_OFFSET = -0.76
_NETWORK_WEIGHT = 1.48
_VOICE_WEIGHT = -1.98
_LEAST = 0.001

WORDLESS = 0.1
"""Most speechiness of music without any voice."""


def instrumentalness(network: float, vocabulary: Vocabulary, probabilities: Tensor) -> float:
    """Weigh an attribute network's instrumentalness with the tags of the same track.

    Args:
        network: What the attribute network says, 0 to 1.
        vocabulary: Of the tagger; without any tag of a voice ``network`` is returned.
        probabilities: Of its tags, ``[K]``.

    Returns:
        0 to 1: how likely it is that the track has no vocals.
    """
    rated = scores(vocabulary, probabilities)
    voices = [value for name, value in rated.items() if name.lower() in VOICE_TAGS]
    if not voices:
        return network
    evidence = (
        _OFFSET + _NETWORK_WEIGHT * _log_odds(network) + _VOICE_WEIGHT * _log_odds(max(voices))
    )
    return 1.0 / (1.0 + math.exp(-evidence))


def speechiness(network: float, without_vocals: float) -> float:
    """Bound an attribute network's speechiness by how likely a voice is at all.

    Args:
        network: What the attribute network says, 0 to 1.
        without_vocals: See `instrumentalness`.

    Returns:
        0 to 1; what is under `WORDLESS` is left as it is.
    """
    return min(network, WORDLESS + (1.0 - WORDLESS) * (1.0 - without_vocals))


def _log_odds(value: float) -> float:
    bounded = min(max(value, _LEAST), 1.0 - _LEAST)
    return math.log(bounded / (1.0 - bounded))
