"""Tags: vocabularies, scores that are comparable between tags, and merging lists into one."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from torch import Tensor

from models.checkpoints.cache import load_json
from models.checkpoints.cards import CardError, ModelCard
from models.musicnn import MSD_TAGS, MTT_TAGS
from pipelines.analysis.records import MoodTag
from pipelines.analysis.tags.audioset import AUDIOSET_TAGS, MOOD_TAGS, N_CLASSES
from pipelines.analysis.tags.kinds import kind_of
from pipelines.analysis.tags.reference import MSD_REFERENCE, MTT_REFERENCE

MIN_SCORE = 0.5
"""Tags below this are not reported."""

MAX_TAGS = 20
"""Maximum number of tags that are reported."""

CANDIDATE = 0.55
"""Highest score of an instrument that only AudioSet's tags report.

In 48 rendered pieces with known instruments, 15 of 76 such tags of .6 or more were right; of those
that musicnn reports too, 33 of 54; of musicnn's own, 28 of 50. The rule was made after these
figures, which agree for both soundfonts (10 of 51, 5 of 25). It was not measured on real music."""

_NEUTRAL = 0.05
_RARE = 0.01
_RELATIVE = 0.6

# Common names for tags that the vocabularies name differently, or that one contains twice.
_SAME = {
    "female vocals": (
        "female vocalists, female vocalist, female vocal, female voice, female, woman"
    ),
    "male vocals": "male vocalists, male vocal, male voice, male, man",
    "vocals": "vocal, voice, singing",
    "instrumental": "no vocals, no vocal, no voice",
    "classical": "classic",
    "choir": "choral",
    "beats": "beat",
    "chill": "chillout",
    "r&b": "rnb",
}
_CANONICAL = {alias: name for name, aliases in _SAME.items() for alias in aliases.split(", ")}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tags of a network.

    Attributes:
        names: In the order of its outputs; "" marks an output that says nothing about music.
        reference: The usual probability of every tag; without it, the score is the probability.
    """

    names: tuple[str, ...]
    reference: Mapping[str, float]


MTT = Vocabulary(MTT_TAGS, MTT_REFERENCE)
MSD = Vocabulary(MSD_TAGS, MSD_REFERENCE)

AUDIOSET = Vocabulary(
    tuple(AUDIOSET_TAGS.get(index, "") for index in range(N_CLASSES)),
    {name: _RARE if name in MOOD_TAGS else _NEUTRAL for name in AUDIOSET_TAGS.values()},
)
"""No reference distribution has been measured: moods count as rare, the rest as usual."""

_FIRST_OF_AUDIOSET = ("Speech", "LABEL_0")
"""First labels of configurations that name AudioSet's classes, or name no classes."""

_VOCABULARIES = {"musicnn-mtt": MTT, "musicnn-msd-768": MSD}


def vocabulary_of(card: ModelCard, model_dir: Path) -> Vocabulary:
    """Return the vocabulary of a checkpoint's ``tags``.

    Raises:
        CardError: Its tags are named nowhere, their number is wrong, or two have the same name.
        CheckpointError: Its configuration, which should name them, is not in the cache.
    """
    if card.model_id in _VOCABULARIES:
        return _VOCABULARIES[card.model_id]
    n_tags = card.outputs.get("tags", 0)
    labels: Mapping[str, str] = {}
    if any(file.path == "config.json" for file in card.files):
        labels = load_json(card, model_dir).get("id2label", {})
    if n_tags == N_CLASSES and (not labels or labels.get("0") in _FIRST_OF_AUDIOSET):
        return AUDIOSET
    if not labels:
        remedy = "let config.json have id2label, and name it among the card's files"
        raise CardError(f"{card.model_id} has no tag vocabulary: {remedy}")
    if set(labels) != {str(i) for i in range(n_tags)}:
        raise CardError(f"{card.model_id}: {len(labels)} names for {n_tags} tags")
    if not all(isinstance(label, str) for label in labels.values()):
        raise CardError(f"{card.model_id}: the names of its tags are not text")
    names = tuple(labels[str(i)].split("---")[-1].lower() for i in range(n_tags))
    # Discogs' labels are "genre---style", each of them rare; other networks' scores are unchanged.
    is_discogs = any("---" in label for label in labels.values())
    twice = [name for name, n in Counter(names).items() if n > 1 and name]
    if twice and not is_discogs:  # where several genres may share the name of a style
        raise CardError(f"{card.model_id}: two of its tags are called {twice[0]!r}")
    return Vocabulary(names, dict.fromkeys(names, _RARE) if is_discogs else {})


def score(probability: float, reference: float) -> float:
    """Turn a tag's probability into a score that is comparable between tags.

    Mood tags are rare, and a network that knows it gives them low probabilities even when they are
    right; so the log-odds are shifted by part of the log-odds of the tag's usual probability. A tag
    usually at .05 scores .5 at that probability; one usually at .01, at .02; one usually at .25, at
    .14.

    Args:
        probability: 0 to 1.
        reference: The tag's usual probability, above 0 and below 1.

    Returns:
        0 to 1, increasing in ``probability``.
    """
    if not 0 < probability < 1:
        return float(probability >= 1)
    moved = _log_odds(probability) - _RELATIVE * _log_odds(reference)
    return 1 / (1 + math.exp((1 - _RELATIVE) * _log_odds(_NEUTRAL) - moved))


def scores(vocabulary: Vocabulary, probabilities: Tensor) -> dict[str, float]:
    """Score every tag of a vocabulary under its original name; ``probabilities`` is ``[K]``."""
    return {
        name: score(probability, vocabulary.reference[name])
        if name in vocabulary.reference
        else probability
        for name, probability in zip(vocabulary.names, probabilities.tolist(), strict=True)
        if name
    }


def calibrated_tags(vocabulary: Vocabulary, probabilities: Tensor) -> list[MoodTag]:
    """Return the tags that stand out, by descending score, under their common names."""
    rated = scores(vocabulary, probabilities).items()
    return merge_tags([MoodTag(name, value) for name, value in rated])


def merge_tags(*lists: Sequence[MoodTag]) -> list[MoodTag]:
    """Merge lists into one: a tag that occurs more than once keeps its highest score.

    Returns:
        At most `MAX_TAGS` tags with a score of at least `MIN_SCORE`, by descending score, then
        name.
    """
    best: dict[str, float] = {}
    for tag in chain(*lists):
        name = _CANONICAL.get(tag.tag.lower(), tag.tag.lower())
        best[name] = max(best.get(name, 0.0), tag.score)
    ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))
    return [MoodTag(name, value) for name, value in ranked if value >= MIN_SCORE][:MAX_TAGS]


def joined_tags(tagger: Sequence[MoodTag], trunk: Sequence[MoodTag]) -> list[MoodTag]:
    """Merge the tags of the tagger and of the embedding's trunk, as `merge_tags` does.

    An instrument that only the trunk reports is no more than a candidate, see `CANDIDATE`.
    """
    heard = {tag.tag for tag in tagger}
    weighed = [
        MoodTag(tag.tag, min(tag.score, CANDIDATE))
        if kind_of(tag.tag) == "instrument" and tag.tag not in heard
        else tag
        for tag in trunk
    ]
    return merge_tags(tagger, weighed)


def _log_odds(probability: float) -> float:
    return math.log(probability / (1 - probability))
