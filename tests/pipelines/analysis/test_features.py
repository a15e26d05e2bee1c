"""Merging of step results and the JSON of the record."""

import json
from dataclasses import replace

import pytest

from models.vibenet import ATTRIBUTES
from pipelines.analysis.features import RecordFormatError, from_json, to_json
from pipelines.analysis.merge import merge
from pipelines.analysis.records import (
    Chord,
    EmbeddingResult,
    MoodResult,
    MoodTag,
    Section,
    Segment,
    SpectralResult,
    TempoAlternative,
)

SPECTRAL = SpectralResult(
    tempo=127.951,
    tempo_confidence=0.9,
    beats=[0.5, 0.96875, 1.4375],
    downbeats=[0.5],
    time_signature=4,
    time_signature_confidence=0.8,
    key=9,
    mode=0,
    key_confidence=0.7,
    loudness_lufs=-9.25,
    loudness_range_lu=4.5,
    true_peak_dbtp=-0.5,
    mix_in_s=7.5,
    mix_out_s=170.0,
    segments=[Segment(0.0, 0.25, 1.0, -60.0, -5.0, 0.125, [0.5] * 12, [1.5] * 12)],
    sections=[Section(0.0, 30.0, 1.0, -8.0, 128.0, 0.5, 9, 0.5, 0, 0.5, 4, 1.0)],
    models={"beats": "beat-this@1", "key": "vqt@1"},
    tempo_alternatives=[TempoAlternative(63.9755, 0.25)],
    chords=[Chord(0.5, 0.9375, 9, 0, 4, 0.75)],
    tuning_cents=-12.5,
)
MOOD = MoodResult(
    *(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
    [MoodTag("happy", 0.75)],
    {"attributes": "vibenet", "tags": "musicnn-mtt"},
    spread=dict.fromkeys(ATTRIBUTES, 0.1),
    n_parts=4,
)
EMBEDDING = EmbeddingResult([0.125] * 768, [], {"embedding": "musicnn@2"})
FEATURES = merge(180.0, SPECTRAL, MOOD, EMBEDDING)


def test_merge_takes_every_value_from_its_step() -> None:
    assert FEATURES.duration_s == 180.0
    assert (FEATURES.tempo, FEATURES.camelot, FEATURES.mix_out_s) == (127.951, "8A", 170.0)
    attributes = [
        FEATURES.acousticness,
        FEATURES.danceability,
        FEATURES.energy,
        FEATURES.instrumentalness,
        FEATURES.liveness,
        FEATURES.speechiness,
        FEATURES.valence,
    ]
    assert attributes == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert FEATURES.embedding == [0.125] * 768
    assert set(FEATURES.attribute_confidence) == set(ATTRIBUTES)
    assert FEATURES.models == {
        "beats": "beat-this@1",
        "key": "vqt@1",
        "attributes": "vibenet",
        "tags": "musicnn-mtt",
        "embedding": "musicnn@2",
    }
    for name in ("beats", "downbeats", "segments", "sections", "loudness_lufs", "key_confidence"):
        assert getattr(FEATURES, name) == getattr(SPECTRAL, name)


def test_json_round_trip() -> None:
    assert from_json(to_json(FEATURES)) == FEATURES
    assert from_json(to_json(FEATURES).decode()) == FEATURES


def test_json_keeps_seven_digits() -> None:
    features = replace(FEATURES, tempo=100 / 3, embedding=[1 / 3])
    once = from_json(to_json(features))
    assert (once.tempo, once.embedding) == (33.33333, [0.3333333])
    assert to_json(once) == to_json(features)


def test_numbers_that_are_not_finite_are_never_written() -> None:
    with pytest.raises(RecordFormatError, match="not finite"):
        to_json(replace(FEATURES, tempo=float("nan")))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"tempo": "fast"},
        {"tempo": None},
        {"key": 9.5},
        {"key": True},
        {"beats": [0.5, "1"]},
        {"surplus": 1},
        {"models": {"beats": 3}},
        {"mood_tags": [{"tag": "happy"}]},
        {"mood_tags": {"tag": "happy"}},
        {"segments": [1]},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    content = json.loads(to_json(FEATURES)) | change
    with pytest.raises(RecordFormatError):
        from_json(json.dumps(content))


def test_a_record_from_before_the_alternatives_and_the_chords_is_read() -> None:
    content = json.loads(to_json(FEATURES))
    del content["tempo_alternatives"], content["chords"], content["tuning_cents"]
    del content["attribute_confidence"]
    old = replace(
        FEATURES, tempo_alternatives=[], chords=[], tuning_cents=0.0, attribute_confidence={}
    )
    assert from_json(json.dumps(content)) == old


def test_an_outline_lacks_what_is_long() -> None:
    outline = FEATURES.outline()
    assert not any((outline.segments, outline.sections, outline.chords, outline.embedding))
    assert (outline.beats, outline.tuning_cents) == (FEATURES.beats, -12.5)


def test_a_missing_field_and_broken_json_are_refused() -> None:
    content = json.loads(to_json(FEATURES))
    del content["valence"]
    for data in (json.dumps(content), "{", "[]", b"\xff"):
        with pytest.raises(RecordFormatError):
            from_json(data)
