"""What identification asks with, made once beside the decoder: plain data without the audio."""

from dataclasses import dataclass

from models.fingerprint.landmarks import CloserLook, Fingerprint

SHORTEST_CLIP_S = 3.0
EXCERPT_S = 12.0
"""What AudD and ACRCloud use of a recording, and what the local index is asked with."""
EXCERPT_RATE = 22_050
WHOLE_TRACK_S = 60.0
"""From this length on a file may be a whole track, which is all that AcoustID knows."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording to identify.

    Attributes:
        duration_s: Length of the whole recording.
        fingerprint: Of its excerpt.
        closer: What the excerpt is looked up with where `fingerprint` leaves a doubt.
        excerpt_wav: The same excerpt as a WAV file: 16 bit, mono, `EXCERPT_RATE`.
        chromaprint: Of its first two minutes, as AcoustID wants it; None for a recording shorter
            than `WHOLE_TRACK_S` and where the chromaprint library is missing.
    """

    duration_s: float
    fingerprint: Fingerprint
    closer: CloserLook
    excerpt_wav: bytes
    chromaprint: str | None = None
