"""Features that depend only on a seed, without models or GPU: what test keys get."""

import hashlib
from collections.abc import Callable

from models.rhythm.tempo import TempoRange
from pipelines.analysis.records import (
    EMBEDDING_DIMENSION,
    Chord,
    MoodTag,
    Section,
    Segment,
    TempoAlternative,
    TrackFeatures,
)
from pipelines.analysis.tags.repeatability import USUAL_SPREADS
from pipelines.analysis.tonality.notes import camelot

MODEL_ID = "simulated"
DURATION_S = 180.0
TAGS = ("mellow", "chill", "happy", "party", "exciting")


def _numbers(seed: str) -> Callable[[], float]:
    """Return a source of numbers in [0, 1) that depend only on ``seed``."""
    count = 0

    def draw() -> float:
        nonlocal count
        digest = hashlib.sha256(f"{seed}/{count}".encode()).digest()
        count += 1
        return int.from_bytes(digest[:4], "big") / 2**32

    return draw


def simulated_features(seed: str, tempo_range: TempoRange | None = None) -> TrackFeatures:
    """Return the features of anything: bytes by their hash, tracks by their key."""
    draw = _numbers(seed)
    at = draw()
    tempo = 60.0 + round(at * 1200) / 10
    if tempo_range is not None:
        tempo = tempo_range.low + round(at * (tempo_range.high - tempo_range.low), 1)
    key, mode = int(draw() * 12), int(draw() * 2)
    beats = [round(n * 60 / tempo, 3) for n in range(int(DURATION_S * tempo / 60))]
    loudness = -5.0 - round(draw() * 150) / 10
    raw = [draw() - 0.5 for _ in range(EMBEDDING_DIMENSION)]
    norm = sum(value * value for value in raw) ** 0.5
    scores = sorted((draw() for _ in TAGS), reverse=True)
    return TrackFeatures(
        duration_s=DURATION_S,
        tempo=tempo,
        tempo_confidence=0.9,
        beats=beats,
        downbeats=beats[::4],
        time_signature=4,
        time_signature_confidence=0.9,
        key=key,
        mode=mode,
        key_confidence=0.8,
        camelot=camelot(key, mode),
        loudness_lufs=loudness,
        loudness_range_lu=6.0,
        true_peak_dbtp=-1.0,
        mix_in_s=beats[4],
        mix_out_s=beats[-8],
        acousticness=draw(),
        danceability=draw(),
        energy=draw(),
        instrumentalness=draw(),
        liveness=draw(),
        speechiness=draw(),
        valence=draw(),
        mood_tags=[MoodTag(tag, score) for tag, score in zip(TAGS, scores, strict=True)],
        models={
            "beats": MODEL_ID,
            "key": MODEL_ID,
            "chords": MODEL_ID,
            "attributes": MODEL_ID,
            "embedding": MODEL_ID,
        },
        embedding=[value / norm for value in raw],
        segments=[_segment(start, loudness, draw) for start in range(0, int(DURATION_S), 10)],
        sections=[_section(start, tempo, key, mode, loudness) for start in (0, 60, 120)],
        chords=[_chord(start, 240 / tempo, key, mode) for start in beats[::4]],
        tempo_alternatives=[TempoAlternative(tempo / 2, 0.06), TempoAlternative(tempo * 2, 0.04)],
        attribute_confidence=dict.fromkeys(USUAL_SPREADS, 0.8),
    )


def _chord(start: float, duration: float, key: int, mode: int) -> Chord:
    return Chord(start, min(duration, DURATION_S - start), key, mode, key, 0.8)


def _segment(start: int, loudness: float, draw: Callable[[], float]) -> Segment:
    return Segment(
        start_s=float(start),
        duration_s=10.0,
        confidence=0.5,
        loudness_start_db=loudness - 10,
        loudness_max_db=loudness,
        loudness_max_time_s=0.1,
        pitches=[draw() for _ in range(12)],
        timbre=[100 * draw() - 50 for _ in range(12)],
    )


def _section(start: int, tempo: float, key: int, mode: int, loudness: float) -> Section:
    return Section(
        start_s=float(start),
        duration_s=60.0,
        confidence=0.5,
        loudness_db=loudness,
        tempo=tempo,
        tempo_confidence=0.9,
        key=key,
        key_confidence=0.8,
        mode=mode,
        mode_confidence=0.8,
        time_signature=4,
        time_signature_confidence=0.9,
    )
