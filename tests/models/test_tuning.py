"""The tuning of recordings with a known tuning."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from models.tonality.tuning import SAMPLE_RATE, WIN_LENGTH, estimate_tuning, frame_starts


def chords(cents: float, seconds: float = 4.0, drums: float = 0.0) -> Tensor:
    """Triads of one second, from tones with six harmonics, and noise bursts."""
    t = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    parts = []
    for root in range(int(seconds)):
        sound = np.zeros_like(t)
        for midi in (50 + root, 54 + root, 57 + root):
            f = 440.0 * 2 ** ((midi - 69 + cents / 100) / 12)
            sound += sum(np.sin(2 * np.pi * f * h * t) / h for h in range(1, 7))
        parts.append(sound * np.exp(-2 * t))
    hits = np.random.default_rng(0).standard_normal(len(parts) * len(t)) * np.exp(
        -20 * (t[0] + np.tile(t % 0.5, len(parts)))
    )
    return torch.from_numpy((0.1 * np.concatenate(parts) + drums * hits).astype(np.float32))


@pytest.mark.parametrize("cents", [-49, -40, -25, -10, 0, 10, 25, 40, 49])
def test_chords(cents: int) -> None:
    assert estimate_tuning(chords(cents)) == pytest.approx(cents, abs=3.0)


@pytest.mark.parametrize("cents", [-30, 30])
def test_chords_under_drums(cents: int) -> None:
    assert estimate_tuning(chords(cents, drums=0.3)) == pytest.approx(cents, abs=8.0)


def test_a_quarter_tone_is_told_from_either_side() -> None:
    assert abs(estimate_tuning(chords(50))) == pytest.approx(50.0, abs=3.0)


@pytest.mark.parametrize("seed", range(5))
def test_noise_has_none(seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal(20 * SAMPLE_RATE)
    assert estimate_tuning(torch.from_numpy(noise.astype(np.float32))) == 0.0


@pytest.mark.parametrize("n", [0, 100, WIN_LENGTH - 1, WIN_LENGTH, 5 * SAMPLE_RATE])
def test_silence_of_any_length_has_none(n: int) -> None:
    assert estimate_tuning(torch.zeros(n)) == 0.0


def test_level_does_not_matter() -> None:
    sound = chords(17)
    assert estimate_tuning(sound * 1e-3) == pytest.approx(estimate_tuning(sound), abs=0.01)


@given(n_samples=st.integers(WIN_LENGTH, 3600 * SAMPLE_RATE))
def test_frames_lie_within_the_track_up_to_an_hour(n_samples: int) -> None:
    starts = frame_starts(n_samples)
    assert (starts[0], len(starts) <= 64) == (0, True)
    assert starts[-1] == n_samples - WIN_LENGTH or len(starts) == 1
    assert starts == sorted(set(starts))
    steps = np.diff(starts)
    assert not len(steps) or steps.max() - steps.min() <= 1


def test_a_length_that_float32_does_not_know() -> None:
    n_samples = 265 * 65_535
    assert n_samples - WIN_LENGTH != int(torch.tensor(float(n_samples - WIN_LENGTH)))
    assert estimate_tuning(torch.zeros(1).expand(n_samples)) == 0.0
