"""Loudness compared with the published conformance signals, generated here."""

import numpy as np
import pytest
import torch
from scipy.signal import resample_poly
from torch import Tensor

from models.loudness import (
    ShapeError,
    gated_loudness,
    gated_range,
    integrated_loudness,
    peak,
    step_energies,
    step_length,
    to_dbtp,
)

RATE = 48_000


def loudness_range(waveform: Tensor, sample_rate: int) -> Tensor:
    return gated_range(step_energies(waveform, sample_rate))


def true_peak(waveform: Tensor) -> Tensor:
    return to_dbtp(peak(waveform))


def tone(level_db: float, seconds: float, hertz: float = 1000.0, rate: int = RATE) -> Tensor:
    t = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    return (10 ** (level_db / 20) * torch.sin(2 * torch.pi * hertz * t)).float()


def stereo(*parts: tuple[float, float], rate: int = RATE) -> Tensor:
    """Parts of (dBFS, seconds), the same in both channels, ``[1, 2, T]``."""
    pieces = [tone(level, seconds, rate=rate) for level, seconds in parts]
    return torch.cat(pieces).expand(1, 2, -1)


# EBU Tech 3341 (2016) table 1, cases 1 to 5; expected values are ±0.1 LU. Cases 7 and 8 are
# recordings that only the EBU can provide.
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
@pytest.mark.parametrize("rate", [44_100, 48_000])
def test_ebu_3341_integrated(parts: list[tuple[float, float]], expected: float, rate: int) -> None:
    assert integrated_loudness(stereo(*parts, rate=rate), rate).item() == pytest.approx(
        expected, abs=0.1
    )


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
@pytest.mark.parametrize("rate", [44_100, 48_000])
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
    divisor: int, degrees: float, amplitude: float, expected: float, rate: int
) -> None:
    n = torch.arange(rate, dtype=torch.float64)
    phase = 2 * torch.pi * n / divisor + degrees * torch.pi / 180
    fade = torch.clamp(torch.minimum(n, rate - n) / 480, max=1.0)
    waveform = (amplitude * fade * torch.sin(phase)).float().expand(1, 2, -1)
    assert -0.4 <= true_peak(waveform).item() - expected <= 0.2


# EBU Tech 3341, cases 20 to 23: built at four times the rate around one loud period, with the peak
# at full scale, and decimated at each of the four offsets.
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("loud_divisor", [4, 6])
def test_ebu_3341_true_peak_between_samples(offset: int, loud_divisor: int) -> None:
    n = 4 * 12_000
    t = torch.arange(n, dtype=torch.float64) / 4
    sound = 0.5 * torch.sin(2 * torch.pi * t / 6)
    loud = slice(n // 2, n // 2 + 4 * loud_divisor)
    sound[loud] = torch.sin(2 * torch.pi * t[: 4 * loud_divisor] / loud_divisor)
    spectrum = torch.fft.rfft(sound)
    spectrum[round(0.475 * len(spectrum) / 2) :] = 0  # nothing above 22.8 of 24 kHz
    fine = torch.fft.irfft(torch.nn.functional.pad(spectrum, (0, 7 * n // 2)), 8 * n)
    peak = fine.abs().max() * 8
    waveform = (torch.fft.irfft(spectrum, n)[offset::4] / peak).float().expand(1, 2, -1)
    assert 20 * float(waveform.abs().max().log10()) < 0.2
    assert -0.4 <= true_peak(waveform).item() <= 0.2


def levels(waveform: Tensor, n_steps: int) -> Tensor:
    """Levels of all runs of ``n_steps``: 4 are momentary, 30 short-term (EBU Tech 3341 §2.2)."""
    energies = step_energies(waveform, RATE)[0].double()
    return -0.691 + 10 * torch.log10(energies.unfold(0, n_steps, 1).mean(-1).clamp_min(1e-12))


def mixed(*parts: tuple[float | None, float]) -> Tensor:
    """Like `stereo`, with None for silence."""
    pieces = [tone(-200 if level is None else level, seconds) for level, seconds in parts]
    return torch.cat(pieces).expand(1, 2, -1)


@pytest.mark.parametrize("level", [-23.0, -33.0])
def test_ebu_3341_cases_1_and_2_momentary_and_short_term(level: float) -> None:
    waveform = mixed((level, 20))
    for n_steps in (4, 30):
        np.testing.assert_allclose(levels(waveform, n_steps), level, atol=0.1)


def test_ebu_3341_case_9_short_term() -> None:
    short_term = levels(mixed(*[(-20.0, 1.34), (-30.0, 1.66)] * 5), 30)
    np.testing.assert_allclose(short_term, -23.0, atol=0.1)


@pytest.mark.parametrize("number", range(20))
def test_ebu_3341_case_10_short_term_maximum(number: int) -> None:
    waveform = mixed((None, 0.15 * number), (-23.0, 3.0), (None, 1.0))
    assert levels(waveform, 30).max().item() == pytest.approx(-23.0, abs=0.1)


def test_ebu_3341_case_11_short_term_successive_maxima() -> None:
    parts: list[tuple[float | None, float]] = []
    for level in range(-38, -18):
        parts += [(level, 3.0), (None, 3.0)]
    found = levels(mixed(*parts), 30)
    for i, level in enumerate(range(-38, -18)):
        segment = found[60 * i : 60 * i + 31]
        assert segment.max().item() == pytest.approx(level, abs=0.1)


def test_ebu_3341_case_12_momentary() -> None:
    momentary = levels(mixed(*[(-20.0, 0.18), (-30.0, 0.22)] * 25), 4)
    np.testing.assert_allclose(momentary[10:], -23.0, atol=0.1)


# A step is 100 ms, so only the starts of case 13 (20 ms apart) that are on a step.
@pytest.mark.parametrize("number", [0, 5, 10, 15])
def test_ebu_3341_case_13_momentary_maximum(number: int) -> None:
    waveform = mixed((None, 0.02 * number), (-23.0, 0.4), (None, 1.0))
    assert levels(waveform, 4).max().item() == pytest.approx(-23.0, abs=0.1)


def test_ebu_3341_case_14_momentary_successive_maxima() -> None:
    parts: list[tuple[float | None, float]] = []
    for level in range(-38, -18):
        parts += [(level, 0.4), (None, 0.4)]
    found = levels(mixed(*parts), 4)
    for i, level in enumerate(range(-38, -18)):
        assert found[8 * i : 8 * i + 5].max().item() == pytest.approx(level, abs=0.1)


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


@pytest.mark.parametrize("n_samples", [30 * RATE, 30 * RATE + 37, 1000, 50])
def test_the_peak_of_clipped_sound_is_beside_any_of_its_many_highest_samples(
    n_samples: int,
) -> None:
    rng = np.random.default_rng(n_samples)
    noise = resample_poly(rng.standard_normal((2, n_samples // 4 + 1)), 4, 1, axis=-1)
    clipped = np.clip(noise[:, :n_samples], -1, 1).astype(np.float32)
    between = np.abs(resample_poly(clipped, 8, 1, axis=-1)).max()
    assert float(true_peak(torch.from_numpy(clipped)[None])) == pytest.approx(
        20 * np.log10(between), abs=0.1
    )
