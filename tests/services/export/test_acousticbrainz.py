"""AcousticBrainz's documents hold what was analysed and measured, and nothing invented."""

from dataclasses import replace

from pipelines.analysis.records import MoodTag
from serve_app.domain.identity import TrackIdentity
from serve_app.services.export.acousticbrainz import high_level, low_level
from serve_app.services.simulation.features import simulated_features

WHO = TrackIdentity(artist="Ada", title="Lanterns", mbid="5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f")
HEARD = replace(simulated_features("one"), tempo=123.4567, key=6, mode=0, mood_tags=[])


def test_tempo_and_key_are_left_out_where_there_are_none() -> None:
    low = low_level(WHO, HEARD)
    assert low["rhythm"]["bpm"] == 123.457
    assert (low["tonal"]["key_key"], low["tonal"]["key_scale"]) == ("F#", "minor")
    silent = low_level(WHO, replace(HEARD, tempo=0.0, beats=[], key=-1, mode=-1))
    assert silent["rhythm"] == {"beats_count": 0, "beats_position": []}
    assert silent["tonal"] == {}


def test_what_others_measured_stands_in_for_what_was_not_heard() -> None:
    measured = replace(WHO, tempo=90.0, key=0, mode=1, duration_s=200.0, source="acousticbrainz")
    low = low_level(measured, None)
    assert (low["lowlevel"], low["rhythm"]) == ({}, {"bpm": 90.0})
    assert low["tonal"] == {"key_key": "C", "key_scale": "major"}
    assert low["metadata"]["audio_properties"] == {"length": 200.0}
    assert low_level(WHO, None)["tonal"] == {}
    assert high_level(measured, None)["highlevel"] == {}
    assert low_level(measured, HEARD)["rhythm"]["bpm"] == 123.457


def test_moods_and_voices_come_of_the_tags_that_were_heard() -> None:
    tags = [("sad", 0.9), ("mellow", 0.6), ("chill", 0.7), ("male vocals", 0.8)]
    heard = replace(HEARD, mood_tags=[MoodTag(*tag) for tag in tags], danceability=0.25)
    moods = high_level(WHO, heard)["highlevel"]
    assert moods["danceability"] == {
        "all": {"danceable": 0.25, "not_danceable": 0.75},
        "probability": 0.75,
        "value": "not_danceable",
    }
    assert moods["mood_sad"]["all"] == {"sad": 0.9, "not_sad": 0.1}
    assert moods["mood_relaxed"]["probability"] == 0.7
    assert (moods["gender"]["value"], moods["gender"]["probability"]) == ("male", 0.8)
    assert not moods.keys() & {"mood_party", "mood_aggressive", "mood_electronic"}
    assert "gender" not in high_level(WHO, HEARD)["highlevel"]
