"""Make a list of tags consistent with itself and with what else is known about the track."""

from collections.abc import Sequence

from pipelines.analysis.records import MoodTag
from pipelines.analysis.tags.vocals import VOICE_TAGS

SURE = 2 / 3
"""From this value on, instrumentalness or its complement is certain enough to report on voices.

Chosen beforehand: of 30 rendered pieces without voices (20 s), one gets a voice tag; with .5, three
do."""
SLOW_BELOW_BPM, FAST_ABOVE_BPM = 110.0, 90.0
"""A track is not called slow from the first tempo up, nor fast up to the second."""
OPPOSITES = (("slow", "fast"), ("quiet", "loud"), ("soft", "loud"), ("happy", "sad"))


def consistent_tags(tags: Sequence[MoodTag], without_vocals: float, tempo: float) -> list[MoodTag]:
    """Drop tags that contradict the track's voices or tempo, or a stronger tag.

    Args:
        tags: Under their common names, by descending score, see
            `pipelines.analysis.tags.tagging.merge_tags`.
        without_vocals: See `pipelines.analysis.tags.vocals.instrumentalness`. If it is uncertain,
            neither a voice nor "instrumental" is reported.
        tempo: BPM; 0 if there is no beat, which contradicts neither slow nor fast.
    """
    out = _of_voices(without_vocals) | _of_pace(tempo)
    kept: list[MoodTag] = []
    for tag in tags:
        stronger = {other.tag for other in kept}
        if tag.tag not in out and not any(
            tag.tag in pair and stronger & set(pair) for pair in OPPOSITES
        ):
            kept.append(tag)
    return kept


def _of_voices(without_vocals: float) -> set[str]:
    wrong: set[str] = set()
    if without_vocals > 1.0 - SURE:
        wrong |= VOICE_TAGS
    if without_vocals < SURE:
        wrong.add("instrumental")
    return wrong


def _of_pace(tempo: float) -> set[str]:
    wrong = set()
    if tempo >= SLOW_BELOW_BPM:
        wrong.add("slow")
    if 0 < tempo <= FAST_ABOVE_BPM:
        wrong.add("fast")
    return wrong
