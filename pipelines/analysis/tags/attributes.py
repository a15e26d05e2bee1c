"""Attributes without an attribute network, mapped from tags.

For deployments whose licence policy excludes VibeNet. The mapping is a set of opinions, not a
trained model: each attribute weighs the tags that speak for it against those that speak against it.
MagnaTagATune has no tag for an audience, so liveness hardly moves with it; AudioSet has one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from models.checkpoints.cards import CardError
from models.vibenet import ATTRIBUTES
from pipelines.analysis.tags.tagging import AUDIOSET, MTT, Vocabulary, scores

MAPPING_NETWORK = "tag-mapping"
"""What a card's ``network`` says when its attributes are this mapping."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What moves an attribute between ``low`` and ``high``.

    The priors are added to what the tags say: with them alone, the attribute lies at
    ``prior_for / (prior_for + prior_against)`` of its range.
    """

    tags_for: str
    tags_against: str
    low: float = 0.0
    high: float = 1.0
    prior_for: float = 0.01
    prior_against: float = 0.01


_MTT: Mapping[str, _Evidence] = {
    "acousticness": _Evidence(
        "classical, strings, violin, cello, harp, harpsichord, flute, piano, guitar, sitar, choir, "
        "solo, soft, quiet",
        "techno, electronic, synth, rock, metal, beat, beats, drums, loud, dance",
    ),
    "danceability": _Evidence(
        "dance, techno, beat, beats, electronic, drums, pop, fast",
        "classical, ambient, opera, slow, choral, harpsichord, new age, quiet, soft",
        low=0.2,
        high=0.85,
    ),
    "energy": _Evidence(
        "loud, fast, rock, metal, techno, drums, beat, beats, dance, electronic",
        "slow, quiet, soft, ambient, new age, solo, classical, harp, cello",
    ),
    "instrumentalness": _Evidence(
        "no vocals, no vocal, no voice",
        "vocal, vocals, singing, female, woman, female vocal, female voice, male, man, male vocal, "
        "male voice, voice, opera, choir, choral",
        high=0.95,
    ),
    "liveness": _Evidence(
        "drums, guitar, solo, choir, man", "techno, electronic, synth, beats", low=0.08, high=0.3
    ),
    "speechiness": _Evidence(
        "voice, man, woman, male voice, female voice",
        "singing, no vocals, no voice, classical, ambient, strings, piano, guitar",
        low=0.03,
        high=0.4,
    ),
    "valence": _Evidence(
        "dance, pop, fast, country, beat, guitar, drums",
        "slow, ambient, quiet, weird, metal, new age, opera, cello",
        low=0.1,
        high=0.9,
    ),
}

_AUDIOSET: Mapping[str, _Evidence] = {
    "acousticness": _Evidence(
        "acoustic guitar, piano, strings, violin, cello, harp, flute, orchestra, classical, banjo, "
        "ukulele, accordion, folk",
        "electronic, techno, house, synth, drum machine, electric guitar, heavy metal, rock, edm, "
        "dubstep, drum and bass",
    ),
    "danceability": _Evidence(
        "dance, disco, house, techno, edm, funk, hip-hop, salsa, reggae, drum machine",
        "classical, ambient, opera, new age, lullaby, traditional, orchestra",
        low=0.2,
        high=0.85,
    ),
    "energy": _Evidence(
        "exciting, angry, heavy metal, punk, rock, drums, techno, drum and bass, dubstep, edm, "
        "electric guitar",
        "tender, sad, lullaby, ambient, new age, classical, harp",
    ),
    "instrumentalness": _Evidence(
        "",
        "singing, male vocals, female vocals, choir, chant, rap, opera, a cappella, speech",
        high=0.95,
        prior_for=0.2,
    ),
    "liveness": _Evidence("crowd, cheering, applause", "", low=0.05, prior_against=0.3),
    "speechiness": _Evidence(
        "speech, male speech, female speech, conversation, narration, rap",
        "singing, piano, guitar, drums, electronic, classical",
        low=0.03,
        prior_against=0.2,
    ),
    "valence": _Evidence(
        "happy, funny, exciting, dance, disco, ska, funk",
        "sad, angry, scary, tender, ambient",
        low=0.1,
        high=0.9,
    ),
}


def attributes_from_tags(vocabulary: Vocabulary, probabilities: Tensor) -> dict[str, float]:
    """Map the tag probabilities ``[K]`` of a vocabulary to attributes, each 0 to 1.

    Raises:
        CardError: The vocabulary is neither MagnaTagATune's nor AudioSet's.
    """
    if vocabulary not in (MTT, AUDIOSET):
        raise CardError("attributes can be mapped from MagnaTagATune's and AudioSet's tags only")
    evidence = _MTT if vocabulary == MTT else _AUDIOSET
    rated = scores(vocabulary, probabilities)
    return {name: _weigh(evidence[name], rated) for name in ATTRIBUTES}


def _weigh(evidence: _Evidence, rated: Mapping[str, float]) -> float:
    weight_for = _strength(evidence.tags_for, rated) + evidence.prior_for
    weight_against = _strength(evidence.tags_against, rated) + evidence.prior_against
    share = weight_for / (weight_for + weight_against)
    return evidence.low + (evidence.high - evidence.low) * share


def _strength(tags: str, rated: Mapping[str, float]) -> float:
    """Sum the squares of the three strongest: many woodwinds say little more than one."""
    found = sorted((rated[tag] for tag in tags.split(", ") if tag), reverse=True)
    return sum(value * value for value in found[:3])
