"""A query for identification, made once next to the decoder: plain data without the audio."""

from dataclasses import dataclass

from models.fingerprint.landmarks import CloserLook, Fingerprint

SHORTEST_CLIP_S = 3.0
EXCERPT_S = 12.0
"""Length of a recording that AudD and ACRCloud use, and that the local index is queried with."""
EXCERPT_RATE = 22_050
WHOLE_TRACK_S = 60.0
"""From this length on a file may be a whole track; AcoustID knows only whole tracks."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording to identify.

    Attributes:
        duration_s: Length of the whole recording.
        fingerprint: Fingerprint of its excerpt.
        closer: What the excerpt is looked up with if `fingerprint` leaves a doubt.
        excerpt_wav: The same excerpt as a WAV file: 16 bit, mono, `EXCERPT_RATE`.
        chromaprint: Of its first two minutes, as AcoustID expects; None if the recording is shorter
            than `WHOLE_TRACK_S` or the chromaprint library is missing.
    """

    duration_s: float
    fingerprint: Fingerprint
    closer: CloserLook
    excerpt_wav: bytes
    chromaprint: str | None = None
