"""Loudness computed in windows compared with that of the whole, and what the windows cost."""

import numpy as np
import pytest
import torch

from models.loudness import gated_range, integrated_loudness, peak, step_energies, to_dbtp
from pipelines.analysis.levels import LevelModel, Levels, join_levels
from pipelines.audio.track import Track
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.steps import forward_windows

MODELS = (LevelModel(torch.device("cpu")), LevelModel(torch.device("cpu"), is_end=True))


def measure(samples: np.ndarray) -> Levels:
    windows = [model.windows(Track.of(Waveform(samples)).samples) for model in MODELS]
    parts = [
        forward_windows(model, part, 2)
        for model, part in zip(MODELS, windows, strict=True)
        if len(part)
    ]
    return join_levels(parts, samples.shape[1])


def music(seconds: float, channels: int = 2) -> np.ndarray:
    rng = np.random.default_rng(round(100 * seconds) + channels)
    n = round(seconds * SAMPLE_RATE)
    swell = 0.02 + 0.2 * np.abs(np.sin(np.arange(n) / SAMPLE_RATE / 7))
    return (rng.standard_normal((channels, n)) * swell / 3).astype(np.float32)


# One window lasts 30 s and advances by 29.9 s.
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("seconds", [0.05, 0.35, 5.0, 29.95, 30.0, 30.05, 59.9, 60.0, 95.33])
def test_windows_measure_what_the_whole_does(seconds: float, channels: int) -> None:
    samples = music(seconds, channels)
    levels, whole = measure(samples), torch.from_numpy(samples)[None]
    if seconds >= 0.1:
        assert levels.loudness_lufs == pytest.approx(
            integrated_loudness(whole, SAMPLE_RATE).item(), abs=2e-3
        )
        range_lu = gated_range(step_energies(whole, SAMPLE_RATE)).item()
        assert levels.range_lu == pytest.approx(range_lu, abs=5e-3)
    assert levels.true_peak_dbtp == pytest.approx(to_dbtp(peak(whole)).item(), abs=1e-3)
    assert len(levels.steps_lufs) == max(1, int(samples.shape[1] // 4410))


def test_the_end_is_no_longer_than_it_has_to_be() -> None:
    end = MODELS[1].windows(torch.zeros(2, round(60.0 * SAMPLE_RATE)))[:]
    assert end.shape == (1, 2, round(2.5 * SAMPLE_RATE))
    assert MODELS[1].forward(end)["energies"].shape == (1, 300)


@pytest.mark.parametrize("channels", [1, 2])
def test_every_sample_is_in_a_window(channels: int) -> None:
    samples = music(75.0, channels)
    for at in (0, 1_318_591, 1_322_999, 2_637_180, samples.shape[1] - 1):
        struck = np.zeros_like(samples)
        struck[0, at] = 0.7
        assert measure(struck).true_peak_dbtp == pytest.approx(20 * np.log10(0.7), abs=1e-3)


def test_a_long_stereo_track_is_viewed_not_copied() -> None:
    samples = music(95.0)
    body, end = (model.windows(Track.of(Waveform(samples)).samples) for model in MODELS)
    assert body[:].data_ptr() == samples.ctypes.data
    assert (len(body), len(end)) == (3, 1)


@pytest.mark.parametrize("seconds", [5.0, 65.0])
def test_read_only_memory_is_taken(seconds: float) -> None:
    samples = music(seconds)
    loudness = measure(samples).loudness_lufs
    samples.flags.writeable = False
    assert measure(samples).loudness_lufs == loudness
