"""What each analysis step returns, and the record that these merge into.

Everything is plain data (JSON types, no NumPy), so it crosses processes and caches unchanged.
"""

from dataclasses import dataclass, field, replace

UNKNOWN_KEY = -1
"""`key` and `mode` of audio without a key (silence, noise)."""

EMBEDDING_DIMENSION = 768
"""Length of every embedding; shorter ones are zero-padded, which keeps their geometry."""

ATTRIBUTES = (
    *("energy", "danceability", "valence", "acousticness"),
    *("instrumentalness", "speechiness", "liveness"),
)
"""Attributes of `TrackFeatures`, 0 to 1, in display order."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of near-constant sound, as in Spotify's audio analysis."""

    start_s: float
    duration_s: float
    confidence: float
    loudness_start_db: float
    loudness_max_db: float
    loudness_max_time_s: float
    pitches: list[float]
    timbre: list[float]


@dataclass(frozen=True, slots=True)
class Section:
    """A large part of a track (verse, chorus, …)."""

    start_s: float
    duration_s: float
    confidence: float
    loudness_db: float
    tempo: float
    tempo_confidence: float
    key: int
    key_confidence: float
    mode: int
    mode_confidence: float
    time_signature: int
    time_signature_confidence: float


@dataclass(frozen=True, slots=True)
class Chord:
    """The chord of a bar or of some of its beats.

    Attributes:
        root: Pitch class, C = 0; `UNKNOWN_KEY` if there is no chord.
        mode: 1 major, 0 minor, -1 no chord.
        bass: Pitch class of the lowest note; -1 no chord.
        confidence: 0 to 1.
    """

    start_s: float
    duration_s: float
    root: int
    mode: int
    bass: int
    confidence: float


@dataclass(frozen=True, slots=True)
class TempoAlternative:
    """Another tempo at which the beats may be counted, and its probability, 0 to 1."""

    tempo: float
    score: float


@dataclass(frozen=True, slots=True)
class SpectralResult:
    """Rhythm, tonality and loudness of a whole track.

    Attributes:
        tempo: BPM; 0 when there is no beat.
        tempo_alternatives: The likeliest first; half and double are among them.
        beats: Seconds, ascending. ``downbeats`` is a subset of it.
        key: Pitch class, C = 0 … B = 11, or `UNKNOWN_KEY`.
        mode: 1 major, 0 minor, -1 unknown.
        loudness_lufs: BS.1770-4 integrated; silence gives -70.
        chords: In chronological order; none for silence.
        tuning_cents: See `models.tonality.tuning.estimate_tuning`.
        confidences: All 0 to 1.
    """

    tempo: float
    tempo_confidence: float
    beats: list[float]
    downbeats: list[float]
    time_signature: int
    time_signature_confidence: float
    key: int
    mode: int
    key_confidence: float
    loudness_lufs: float
    loudness_range_lu: float
    true_peak_dbtp: float
    mix_in_s: float
    mix_out_s: float
    segments: list[Segment]
    sections: list[Section]
    models: dict[str, str]
    tempo_alternatives: list[TempoAlternative] = field(default_factory=list)
    chords: list[Chord] = field(default_factory=list)
    tuning_cents: float = field(default_factory=float)


@dataclass(frozen=True, slots=True)
class MoodTag:
    """A tag and its calibrated score, 0 to 1."""

    tag: str
    score: float


@dataclass(frozen=True, slots=True)
class MoodResult:
    """Spotify-style attributes, each 0 to 1, and tags by descending score.

    Attributes:
        spread: Standard deviation of each attribute over ``n_parts`` equal parts of the track;
            empty if nothing was analysed.
    """

    acousticness: float
    danceability: float
    energy: float
    instrumentalness: float
    liveness: float
    speechiness: float
    valence: float
    tags: list[MoodTag]
    models: dict[str, str]
    spread: dict[str, float] = field(default_factory=dict)
    n_parts: int = 0


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """A vector with L2 norm 1 (zeros for silence), and what the same trunk's tags show.

    Attributes:
        tags: Empty if the trunk has none.
        audience: How likely it is that an audience is audible, 0 to 1; 0 if the trunk cannot tell.
        speech: How much of the track is speech, 0 to 1; 0 if the trunk cannot tell.
        voices: See `pipelines.analysis.tags.vocals.voices`; None if the trunk cannot tell.
    """

    vector: list[float]
    tags: list[MoodTag]
    models: dict[str, str]
    audience: float = 0.0
    speech: float = 0.0
    voices: float | None = None


@dataclass(frozen=True, slots=True)
class TrackFeatures:
    """Everything known about a track's audio: the extended record, stored and cached.

    Attributes as in `SpectralResult` and `MoodResult`; ``camelot`` is "" when the key is unknown.
    ``models`` maps each role to the id of the checkpoint that made it. ``artist`` and ``title`` are
    what the tags of an uploaded file say, or "". ``attribute_confidence`` is empty if unknown, see
    `pipelines.analysis.tags.repeatability.repeatability`.
    """

    duration_s: float
    tempo: float
    tempo_confidence: float
    beats: list[float]
    downbeats: list[float]
    time_signature: int
    time_signature_confidence: float
    key: int
    mode: int
    key_confidence: float
    camelot: str
    loudness_lufs: float
    loudness_range_lu: float
    true_peak_dbtp: float
    mix_in_s: float
    mix_out_s: float
    acousticness: float
    danceability: float
    energy: float
    instrumentalness: float
    liveness: float
    speechiness: float
    valence: float
    mood_tags: list[MoodTag]
    models: dict[str, str]
    embedding: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    tempo_alternatives: list[TempoAlternative] = field(default_factory=list)
    chords: list[Chord] = field(default_factory=list)
    tuning_cents: float = field(default_factory=float)
    artist: str = field(default_factory=str)
    title: str = field(default_factory=str)
    attribute_confidence: dict[str, float] = field(default_factory=dict)

    def outline(self) -> "TrackFeatures":
        """Return what look-ups return: no segments, sections, chords or embedding."""
        return replace(self, segments=[], sections=[], chords=[], embedding=[])


@dataclass(frozen=True, slots=True)
class QuickFeatures:
    """Only tempo and key, as in `TrackFeatures`."""

    tempo: float
    tempo_confidence: float
    key: int
    mode: int
    camelot: str
