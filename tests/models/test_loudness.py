"""Loudness against the published conformance signals, generated here."""

import numpy as np
import pytest
import torch
from torch import Tensor

from models.loudness import (
    ShapeError,
    gated_loudness,
    integrated_loudness,
    loudness_range,
    step_energies,
    step_length,
    true_peak,
)

RATE = 48_000


def tone(level_db: float, seconds: float, hertz: float = 1000.0, rate: int = RATE) -> Tensor:
    t = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    return (10 ** (level_db / 20) * torch.sin(2 * torch.pi * hertz * t)).float()


def stereo(*parts: tuple[float, float]) -> Tensor:
    """Parts of (dBFS, seconds), the same in both channels, ``[1, 2, T]``."""
    return torch.cat([tone(*part) for part in parts]).expand(1, 2, -1)


# EBU Tech 3341 (2016) table 1, cases 1 to 5; expected values are ±0.1 LU.
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(-23, 20)], -23.0),
        ([(-33, 20)], -33.0),
        ([(-36, 10), (-23, 60), (-36, 10)], -23.0),
        ([(-72, 10), (-36, 10), (-23, 60), (-36, 10), (-72, 10)], -23.0),
        ([(-26, 20), (-20, 20.1), (-26, 20)], -23.0),
    ],
)
def test_ebu_3341_integrated(parts: list[tuple[float, float]], expected: float) -> None:
    assert integrated_loudness(stereo(*parts), RATE).item() == pytest.approx(expected, abs=0.1)


def test_ebu_3341_case_6_surround() -> None:
    levels = (-28, -28, -24, -30, -30)
    waveform = torch.stack([tone(level, 20) for level in levels])[None]
    assert integrated_loudness(waveform, RATE).item() == pytest.approx(-23.0, abs=0.1)


@pytest.mark.parametrize("rate", [44_100, 48_000, 96_000])
def test_bs1770_full_scale_sine_is_minus_3(rate: int) -> None:
    waveform = tone(0.0, 5, 997.0, rate)[None, None]
    assert integrated_loudness(waveform, rate).item() == pytest.approx(-3.01, abs=0.02)


def test_low_frequencies_count_less() -> None:
    # BS.1770-4's coefficients at 48 kHz give -6.3 dB at 38 Hz, +4 dB far above 2 kHz.
    deep = integrated_loudness(tone(-10, 10, 38.135)[None, None], RATE).item()
    high = integrated_loudness(tone(-10, 10, 12_000.0)[None, None], RATE).item()
    middle = integrated_loudness(tone(-10, 10, 997.0)[None, None], RATE).item()
    assert deep - middle == pytest.approx(-6.7, abs=0.3)
    assert high - middle == pytest.approx(3.3, abs=0.2)


# EBU Tech 3342 (2016), cases 1 to 4; ±1 LU allowed.
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(-20, 20), (-30, 20)], 10),
        ([(-20, 20), (-15, 20)], 5),
        ([(-40, 20), (-20, 20)], 20),
        ([(-50, 20), (-35, 20), (-20, 20), (-35, 20), (-50, 20)], 15),
    ],
)
def test_ebu_3342_range(parts: list[tuple[float, float]], expected: float) -> None:
    assert loudness_range(stereo(*parts), RATE).item() == pytest.approx(expected, abs=0.1)


# EBU Tech 3341, cases 15 to 19: +0.2 / -0.4 dB allowed.
@pytest.mark.parametrize(
    ("divisor", "degrees", "amplitude", "expected"),
    [
        (4, 0, 0.5, -6.0),
        (4, 45, 0.5, -6.0),
        (6, 60, 0.5, -6.0),
        (8, 67.5, 0.5, -6.0),
        (4, 45, 1.41, 3.0),
    ],
)
def test_ebu_3341_true_peak(
    divisor: int, degrees: float, amplitude: float, expected: float
) -> None:
    n = torch.arange(RATE, dtype=torch.float64)
    phase = 2 * torch.pi * n / divisor + degrees * torch.pi / 180
    fade = torch.clamp(torch.minimum(n, RATE - n) / 480, max=1.0)
    waveform = (amplitude * fade * torch.sin(phase)).float().expand(1, 2, -1)
    assert (
        -0.4
        <= true_peak(
            waveform,
        ).item()
        - expected
        <= 0.2
    )


def test_gain_moves_everything_by_the_same() -> None:
    noise = torch.from_numpy(np.random.default_rng(0).normal(0, 0.1, (1, 2, 10 * 44_100))).float()
    louder = noise * 10 ** (6 / 20)
    for measure in (lambda x: integrated_loudness(x, 44_100), true_peak):
        assert (measure(louder) - measure(noise)).item() == pytest.approx(6.0, abs=1e-3)
    assert loudness_range(louder, 44_100).item() == pytest.approx(
        loudness_range(noise, 44_100).item(), abs=1e-3
    )


def test_a_row_equals_itself_alone() -> None:
    rng = np.random.default_rng(1)
    batch = torch.from_numpy(rng.normal(0, [[[0.1]], [[0.01]]], (2, 2, 5 * 44_100))).float()
    together = integrated_loudness(batch, 44_100)
    alone = torch.cat([integrated_loudness(row[None], 44_100) for row in batch])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)
    torch.testing.assert_close(true_peak(batch)[1:], true_peak(batch[1:]))


def test_steps_of_a_window_with_lead_in_equal_the_tracks() -> None:
    noise = torch.from_numpy(np.random.default_rng(2).normal(0, 0.1, (1, 1, 441_000))).float()
    step = step_length(44_100)
    whole = step_energies(noise, 44_100)[0, 40:60]
    window = step_energies(noise[..., 39 * step : 60 * step], 44_100)[0, 1:]
    torch.testing.assert_close(window, whole, rtol=1e-4, atol=0)


def test_an_empty_second_channel_adds_nothing() -> None:
    mono = tone(-20, 5)[None, None]
    padded = torch.cat([mono, torch.zeros_like(mono)], dim=1)
    torch.testing.assert_close(
        integrated_loudness(mono, RATE), integrated_loudness(padded, RATE), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3, 5.0])
def test_silence_of_any_length(seconds: float) -> None:
    silence = torch.zeros(1, 2, round(seconds * 44_100))
    assert integrated_loudness(silence, 44_100).item() == -70.0
    assert loudness_range(silence, 44_100).item() == 0.0
    assert true_peak(silence).item() == pytest.approx(-120.0)


def test_less_than_a_gating_block_is_one_block() -> None:
    assert gated_loudness(torch.full((1, 2), 0.01)).item() == pytest.approx(-20.691, abs=1e-3)


@pytest.mark.parametrize("shape", [(2, 100), (1, 6, 100), (1, 1, 2, 100)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        integrated_loudness(torch.zeros(shape), RATE)
    with pytest.raises(ShapeError):
        true_peak(torch.zeros(shape))
