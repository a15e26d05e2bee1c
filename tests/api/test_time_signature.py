"""The bar's length on Spotify's scale."""

from dataclasses import replace

import pytest

from pipelines.analysis.records import TrackFeatures
from serve_app.api.wire.dialects.spotify import audio_analysis, time_signature
from serve_app.api.wire.features import to_spotify
from serve_app.services.simulation.features import simulated_features


@pytest.mark.parametrize(
    ("beats", "expected"), [(2, 4), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (9, 7), (1, 3)]
)
def test_two_in_a_bar_count_as_four(beats: int, expected: int) -> None:
    assert time_signature(beats) == expected


def test_the_wire_keeps_to_the_scale() -> None:
    beats = [n / 2 for n in range(41)]
    features: TrackFeatures = replace(
        simulated_features("march"), beats=beats, downbeats=beats[::2], time_signature=2
    )
    assert to_spotify(features, "job_1", "https://afa.example").time_signature == 4
    analysis = audio_analysis(features)
    assert analysis["track"]["time_signature"] == 4
    starts = [beat["start"] for beat in analysis["beats"]]
    assert [bar["start"] for bar in analysis["bars"]] == starts[::4]
