"""The structure of a track on the wire: bars, beats, chords, sections, segments."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from pipelines.analysis.records import Chord, Section, Segment, TrackFeatures
from pipelines.analysis.tonality.notes import chord_name, mode_name, pitch_class, quality
from serve_app.api.wire.bodies import KeyName, Meta, Unit, WireModel
from serve_app.api.wire.features import ExtendedFeatures, extended_fields
from serve_app.api.wire.meanings import META


class Span(WireModel):
    """A stretch of the track."""

    start: float = Field(ge=0, description="Seconds from the beginning of the track.")
    duration: float = Field(ge=0, description="Seconds.")


class TrackSection(Span):
    """A large part of the track, such as a verse or a chorus; the sections cover all of it."""

    confidence: Unit = Field(description="How clear the boundary at its start is, 0 to 1.")
    loudness: float = Field(description="Mean loudness of the section in LUFS, not gated.")
    tempo: float = Field(ge=0, description="BPM within the section; 0 when there is no beat.")
    tempo_confidence: Unit = Field(
        description="How regular and clear the beats of the whole track are, 0 to 1; 0 in silence."
    )
    key: KeyName | None = Field(description="Key of the section; null when there is none.")
    mode: Literal["major", "minor"] | None = Field(description="null when there is no key.")
    key_confidence: Unit = Field(description="How well the notes fit that key, 0 to 1.")
    time_signature: int = Field(ge=0, description="Beats in a bar of the whole track.")


class TrackSegment(Span):
    """A stretch of near-constant sound: a note, a chord, a drum hit."""

    confidence: Unit = Field(description="How clear the onset at its start is, 0 to 1.")
    loudness_start: float = Field(description="Level at its start, dB relative to full scale.")
    loudness_max: float = Field(description="Highest level within it, dB relative to full scale.")
    loudness_max_time: float = Field(ge=0, description="Seconds from its start to that level.")
    pitches: list[float] = Field(
        description="Strength of the twelve pitch classes from C to B; the strongest is 1."
    )
    timbre: list[float] = Field(description="Twelve coefficients of the spectrum's shape.")


class TrackChord(Span):
    """A chord of a bar, or of some of its beats if the chord changes within the bar."""

    chord: str = Field(
        description="Its name as MIREX and mir_eval read it: root, quality, and the degree of the "
        "bass if that is not the root; `N` if there is no chord.",
        examples=["C:min/5"],
    )
    root: KeyName | None = Field(description="Its root; null when there is no chord.")
    quality: Literal["maj", "min"] | None = Field(
        description="Major or minor, whatever else the chord has; null when there is no chord."
    )
    bass: KeyName | None = Field(description="Its lowest note; null when there is no chord.")
    confidence: Unit = Field(description="How likely root and quality are right, 0 to 1.")


class TrackAnalysis(ExtendedFeatures):
    """Everything that was found in a track's audio except its embedding."""

    beats: list[float] = Field(description="Time of every beat in seconds, ascending.")
    bars: list[Span] = Field(description="The bars, each from one downbeat to the next.")
    chords: list[TrackChord] = Field(
        description="The chords in order, from the beginning to the end of the track, at least "
        "one per bar. Empty for silence, and for tracks analysed before chords were introduced."
    )
    tuning: float = Field(
        ge=-50,
        le=50,
        description="How far the pitch standard is above 440 Hz, in cents; also 0 if the notes do "
        "not agree on one.",
    )
    sections: list[TrackSection] = Field(description="The large parts, in order.")
    segments: list[TrackSegment] = Field(description="The stretches of near-constant sound.")
    meta: Meta = Field(alias="_meta", description=META)


def track_analysis(features: TrackFeatures, artist: str, title: str) -> dict[str, Any]:
    """Return the fields of a `TrackAnalysis` but its ``_meta``."""
    return extended_fields(features, artist, title) | {
        "beats": [round(beat, 4) for beat in features.beats],
        "bars": bars(features.downbeats, features.duration_s),
        "chords": [_chord(chord) for chord in features.chords],
        "tuning": round(features.tuning_cents, 1),
        "sections": [_section(section) for section in features.sections],
        "segments": [_segment(segment) for segment in features.segments],
    }


def bars(downbeats: Sequence[float], duration_s: float) -> list[Span]:
    """Return the bars between first beats; the last one ends with the track."""
    ends = [*downbeats[1:], max(duration_s, downbeats[-1])] if downbeats else []
    return [
        Span(start=round(start, 4), duration=round(end - start, 4))
        for start, end in zip(downbeats, ends, strict=True)
    ]


def _chord(chord: Chord) -> TrackChord:
    return TrackChord(
        start=round(chord.start_s, 4),
        duration=round(chord.duration_s, 4),
        chord=chord_name(chord.root, chord.mode, chord.bass),
        root=pitch_class(chord.root),
        quality=quality(chord.mode),
        bass=pitch_class(chord.bass),
        confidence=round(chord.confidence, 3),
    )


def _section(section: Section) -> TrackSection:
    return TrackSection(
        start=round(section.start_s, 4),
        duration=round(section.duration_s, 4),
        confidence=round(section.confidence, 3),
        loudness=round(section.loudness_db, 2),
        tempo=round(section.tempo, 3),
        tempo_confidence=round(section.tempo_confidence, 3),
        key=pitch_class(section.key),
        mode=mode_name(section.mode),
        key_confidence=round(section.key_confidence, 3),
        time_signature=section.time_signature,
    )


def _segment(segment: Segment) -> TrackSegment:
    return TrackSegment(
        start=round(segment.start_s, 4),
        duration=round(segment.duration_s, 4),
        confidence=round(segment.confidence, 3),
        loudness_start=round(segment.loudness_start_db, 2),
        loudness_max=round(segment.loudness_max_db, 2),
        loudness_max_time=round(segment.loudness_max_time_s, 4),
        pitches=[round(value, 3) for value in segment.pitches],
        timbre=[round(value, 3) for value in segment.timbre],
    )
