"""Whether anybody sings or speaks: an attribute network's answers weighed with a tagger's voices.

VibeNet alone separates voices from instruments, but does not use the scale as intended: songs with
a full band lie at .5-.8, instrumental music at .7-.95. A tagger detects voices better; the two
together are calibrated so that .5 divides songs from instrumentals. But a tagger trained on songs
goes by their sound and finds a singer in a solo guitar. A network trained on sounds of all kinds
does not, so its answer weighs most. And without a voice there is no speech: hiss, rain and
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
# -6 to +3 dB against the band. Leaving out singers and clips in turn, the area under the ROC curve
# is .93 together, .80 for VibeNet alone, .94 for the tagger alone; 86 % of the sung stretches lie
# below .5, 89 % of the instrumental ones above.
_OFFSET = -0.76
_NETWORK_WEIGHT = 1.48
_VOICE_WEIGHT = -1.98
_LEAST = 0.001

SOUND_TAGGER = "efficientat-mn04"
"""The AudioSet network on whose probabilities `voices` and `with_voices` were fitted."""
SINGING_TAGS = ("singing", "male vocals", "female vocals", "rap", "a cappella")
SPEECH_TAGS = ("speech", "male speech", "female speech", "conversation", "narration")
_SUNG, _SPOKEN = 0.01, 0.07
"""Probabilities between those of instrumental music and those of songs, and of speech over music.

In 94 instrumental clips, the median of singing is .003 and the 90th percentile .007; with singers,
the median is .05 and the 10th percentile .008. Speech: .02 and .04; with speakers .54 and .32."""

# Logistic regression, with a ridge of 10, over 582 stretches of 20 s: 94 clips of the evaluation
# set, alone, with each of the three singers and with a speaker at -6 to +6 dB, and 112 of game
# music. Leaving out voices and clips in turn, the area under the ROC curve is 1.00; without, .96.
_HEARD_OFFSET = 0.56
_MUSIC_WEIGHT = 0.41
_HEARD_WEIGHT = -1.99

WORDLESS = 0.1
"""Highest speechiness of music without any voice."""


def instrumentalness(network: float, vocabulary: Vocabulary, probabilities: Tensor) -> float:
    """Weigh an attribute network's instrumentalness with the tags of the same track.

    Args:
        network: The attribute network's value, 0 to 1.
        vocabulary: The tagger's; if it has no voice tag, ``network`` is returned.
        probabilities: The tagger's, ``[K]``.

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


def voices(vocabulary: Vocabulary, windows: Tensor) -> float:
    """Weigh the evidence for a voice in tag probabilities ``[W, K]`` of `SOUND_TAGGER`.

    Choirs' ohs and ahs count as instruments, as in `VOICE_TAGS`.

    Returns:
        Log-odds (natural) relative to the boundary between music with and without voices, at 0.
    """
    heard = dict(zip(vocabulary.names, windows.mean(dim=0).tolist(), strict=True))
    sung, spoken = (max(heard[tag] for tag in tags) for tags in (SINGING_TAGS, SPEECH_TAGS))
    return max(_log_odds(sung) - _log_odds(_SUNG), _log_odds(spoken) - _log_odds(_SPOKEN))


def with_voices(without_vocals: float, voices: float) -> tuple[float, float]:
    """Weigh `instrumentalness` with `voices`.

    Returns:
        0 to 1, as `instrumentalness`; and its derivative with respect to ``without_vocals``.
    """
    evidence = _HEARD_OFFSET + _MUSIC_WEIGHT * _log_odds(without_vocals) + _HEARD_WEIGHT * voices
    weighed = 1.0 / (1.0 + math.exp(-evidence))
    slope = _MUSIC_WEIGHT * weighed * (1.0 - weighed)
    return weighed, slope / max(without_vocals * (1.0 - without_vocals), _LEAST)


def speechiness(network: float, without_vocals: float) -> float:
    """Bound an attribute network's speechiness by how likely a voice is at all.

    Args:
        network: The attribute network's value, 0 to 1.
        without_vocals: See `instrumentalness`.

    Returns:
        0 to 1; values below `WORDLESS` are unchanged.
    """
    return min(network, WORDLESS + (1.0 - WORDLESS) * (1.0 - without_vocals))


def _log_odds(value: float) -> float:
    bounded = min(max(value, _LEAST), 1.0 - _LEAST)
    return math.log(bounded / (1.0 - bounded))
