"""People in and around the music: voices and an audience, as AudioSet's tags show them.

The attribute network detects neither well: its liveness hardly moves, acted dialogue gets a
speechiness of .2, and solo guitars are mistaken for songs.
"""

from dataclasses import replace

from torch import Tensor

from pipelines.analysis.records import EmbeddingResult, MoodResult
from pipelines.analysis.tags.tagging import Vocabulary, scores
from pipelines.analysis.tags.vocals import SPEECH_TAGS, speechiness, with_voices

AUDIENCE_TAGS = ("applause", "cheering", "crowd")
ANOTHER = 0.1
"""Values that differ by more count as different, as in `pipelines.analysis.tags.repeatability`."""


def audience(vocabulary: Vocabulary, windows: Tensor) -> float:
    """Return how likely an audience is, from tag probabilities ``[W, K]``.

    The strongest window counts, since people clap before and after a song. The score reaches .5 at
    a probability of .05. The largest probability in 259 tracks of game music is .024, the 99th
    percentile .011; for ten seconds of music that end in one of four recorded audiences, the median
    of ten tracks is .05 to .33.

    Returns:
        0 to 1; 0 if the vocabulary has no such tag.
    """
    rated = scores(vocabulary, windows.amax(dim=0))
    return max(rated.get(tag, 0.0) for tag in AUDIENCE_TAGS)


def speech(vocabulary: Vocabulary, windows: Tensor) -> float:
    """Return how much of a track is speech, from tag probabilities ``[W, K]``.

    This is the mean probability: at most .17 in 259 tracks of game music, .64 to .84 for
    synthesised, read and acted speech (six recordings of 10 to 30 s).

    Returns:
        0 to 1; 0 if the vocabulary has no such tag.
    """
    probabilities: dict[str, float] = dict(
        zip(vocabulary.names, windows.mean(dim=0).tolist(), strict=True)
    )
    return max(probabilities.get(tag, 0.0) for tag in SPEECH_TAGS)


def with_presence(mood: MoodResult, embedding: EmbeddingResult) -> MoodResult:
    """Weigh instrumentalness with the embedding trunk's voices; raise liveness and speechiness.

    If liveness or speechiness rises by more than `ANOTHER`, its spread no longer applies and is
    left out.
    """
    if embedding.voices is not None:
        mood = _with_voices(mood, embedding.voices)
    raised = replace(
        mood,
        liveness=max(mood.liveness, embedding.audience),
        speechiness=max(mood.speechiness, embedding.speech),
    )
    return replace(
        raised,
        spread={
            name: spread
            for name, spread in mood.spread.items()
            if getattr(raised, name) <= getattr(mood, name) + ANOTHER
        },
    )


def _with_voices(mood: MoodResult, voices: float) -> MoodResult:
    without_vocals, slope = with_voices(mood.instrumentalness, voices)
    return replace(
        mood,
        instrumentalness=without_vocals,
        speechiness=speechiness(mood.speechiness, without_vocals),
        spread={
            name: spread * slope if name == "instrumentalness" else spread
            for name, spread in mood.spread.items()
        },
    )
