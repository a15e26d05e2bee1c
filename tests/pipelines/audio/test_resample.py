"""Resampling in pieces compared with resampling at once."""

import numpy as np
import pytest

from pipelines.audio.resample import mono_at, resample
from pipelines.audio.waveform import Waveform


@pytest.mark.parametrize("target", [16_000, 22_050, 44_100])
@pytest.mark.parametrize("n", [0, 1, 4_410, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_stretches_join_without_a_seam(n: int, target: int) -> None:
    rng = np.random.default_rng(n)
    waveform = Waveform(rng.uniform(-1, 1, (2, n)).astype(np.float32))
    at_once = resample(waveform.mono(), 44_100, target)
    np.testing.assert_array_equal(mono_at(waveform, target), at_once)


@pytest.mark.parametrize("target", [16_000, 44_100])
def test_zeros_follow_where_there_is_to_be_room(target: int) -> None:
    waveform = Waveform(np.ones((2, 10_001), dtype=np.float32))
    result = mono_at(waveform, target, n_behind=700)
    np.testing.assert_array_equal(result[:-700], mono_at(waveform, target))
    assert not result[-700:].any()


def test_the_result_is_the_callers_own() -> None:
    waveform = Waveform(np.ones((1, 1000), dtype=np.float32))
    result = mono_at(waveform, 44_100)
    result *= 2
    assert waveform.samples.max() == 1
