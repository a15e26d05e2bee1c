"""What `afa bench metronomes` counts."""

import numpy as np
import pytest

from benchmarks.accuracy.metronomes import FIRST_S, METRES, SOUNDS, Heard, metronome, summarise
from pipelines.audio.waveform import SAMPLE_RATE


def heard(told: float, alternatives: list[float]) -> Heard:
    return Heard(60, "click", 0, told, alternatives)


def test_half_and_double_are_wrong_and_may_be_offered() -> None:
    found = [heard(60.02, []), heard(120.0, [60.0, 240.0]), heard(120.0, [40.0]), heard(0.0, [])]
    result = summarise(found)
    assert result.rows == [(60, 4, 1, 2, "0, 120")]
    assert (result.values["right"], result.values["offered"]) == (1, 2)
    assert not result.targets[0].is_met
    assert summarise(found[:2]).targets[0].is_met


@pytest.mark.parametrize("sound", SOUNDS)
def test_it_clicks_at_its_tempo_louder_where_a_bar_begins(sound: str) -> None:
    for metre in METRES:
        track = np.abs(metronome(120, sound, metre, seconds=4.0))
        levels = []
        for beat in np.arange(FIRST_S, 3.9, 0.5):
            at = round(beat * SAMPLE_RATE)
            assert not track[at - 1000 : at].any()
            levels.append(track[at : at + 3000].max())
        loud = {i for i, level in enumerate(levels) if level > 0.65}
        assert loud == (set(range(0, len(levels), metre)) if metre else set())
