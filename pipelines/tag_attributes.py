"""Attributes without an attribute network: a mapping of MagnaTagATune tags.

The stand-in for deployments whose licence policy excludes VibeNet. It is a set of opinions, not a
trained model: each attribute weighs the tags that speak for it against those that speak against it.
Liveness has no tag that speaks for it, and follows only how little studio electronics there is.
"""

from torch import Tensor

from models.vibenet import ATTRIBUTES
from pipelines.tags import Vocabulary, scores

MAPPING_NETWORK = "tag-mapping"
"""What a card's ``network`` says when its attributes are this mapping."""

# Attribute → (tags for it, tags against it, lowest value, highest value).
_EVIDENCE = {
    "acousticness": (
        "classical, strings, violin, cello, harp, harpsichord, flute, piano, guitar, sitar, choir, "
        "solo, soft, quiet",
        "techno, electronic, synth, rock, metal, beat, beats, drums, loud, dance",
        (0.0, 1.0),
    ),
    "danceability": (
        "dance, techno, beat, beats, electronic, drums, pop, fast",
        "classical, ambient, opera, slow, choral, harpsichord, new age, quiet, soft",
        (0.2, 0.85),
    ),
    "energy": (
        "loud, fast, rock, metal, techno, drums, beat, beats, dance, electronic",
        "slow, quiet, soft, ambient, new age, solo, classical, harp, cello",
        (0.0, 1.0),
    ),
    "instrumentalness": (
        "no vocals, no vocal, no voice",
        "vocal, vocals, singing, female, woman, female vocal, female voice, male, man, male vocal, "
        "male voice, voice, opera, choir, choral",
        (0.0, 0.95),
    ),
    "liveness": (
        "drums, guitar, solo, choir, man",
        "techno, electronic, synth, beats",
        (0.08, 0.3),
    ),
    "speechiness": (
        "voice, man, woman, male voice, female voice",
        "singing, no vocals, no voice, classical, ambient, strings, piano, guitar",
        (0.03, 0.4),
    ),
    "valence": (
        "dance, pop, fast, country, beat, guitar, drums",
        "slow, ambient, quiet, weird, metal, new age, opera, cello",
        (0.1, 0.9),
    ),
}


def attributes_from_tags(vocabulary: Vocabulary, probabilities: Tensor) -> dict[str, float]:
    """Map tag probabilities ``[K]`` of the MagnaTagATune vocabulary to attributes, each 0 to 1."""
    rated = scores(vocabulary, probabilities)

    def strength(tags: str) -> float:
        # The strongest three: whether one or all of the woodwinds play says the same.
        strongest = sorted((rated[tag] for tag in tags.split(", ")), reverse=True)[:3]
        return sum(value * value for value in strongest)

    values = {}
    for name in ATTRIBUTES:
        tags_for, tags_against, (low, high) = _EVIDENCE[name]
        weight_for, weight_against = strength(tags_for), strength(tags_against)
        # The small constant decides for the middle where neither side says anything.
        share = (weight_for + 0.01) / (weight_for + weight_against + 0.02)
        values[name] = low + (high - low) * share
    return values
