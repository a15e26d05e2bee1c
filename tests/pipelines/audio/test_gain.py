import numpy as np
import pytest
import torch

from models.loudness import integrated_loudness
from pipelines.audio.gain import TARGET_LUFS, audible, hush, measure_gain, peak_of, sounding
from pipelines.audio.track import Track


def tone(level: float) -> np.ndarray:
    t = np.arange(16_000 * 3) / 16_000
    return (level * np.sin(2 * np.pi * 997 * t)).astype(np.float32)


@pytest.mark.parametrize("level", [1.0, 0.1, 0.003])
def test_the_gain_brings_any_track_to_the_target(level: float) -> None:
    gain = measure_gain(torch.from_numpy(tone(level)), 16_000)
    assert gain is not None
    levelled = torch.from_numpy(tone(level) * gain)[None, None].float()
    assert float(integrated_loudness(levelled, 16_000)) == pytest.approx(TARGET_LUFS, abs=0.05)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)])
def test_the_peak_is_of_all_rows_and_either_sign(shape: tuple[int, ...]) -> None:
    samples = torch.tensor([0.1, -0.2, 0.3, 0.2, -0.75, 0.5]).reshape(shape)
    assert peak_of(samples) == 0.75
    assert peak_of(-samples) == 0.75
    assert peak_of(samples[..., :0]) == 0.0


def test_the_peak_of_rows_that_lie_apart_takes_no_copy() -> None:
    samples = torch.rand(2, 1 << 21)[:, : 1 << 20]
    with torch.profiler.profile(profile_memory=True) as profile:
        peak_of(samples)
    assert max(event.self_cpu_memory_usage for event in profile.key_averages()) < 1 << 16


@pytest.mark.parametrize(
    ("track", "left"),
    [
        ([0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 1]),
        ([1, 0, 0, 0, 0], [1]),
        ([0, 0, 0, 0, 1], [1]),
        ([1], [1]),
        ([0, 0, 0, 5e-5, 0], [0, 0, 0, 5e-5, 0]),
        ([], []),
    ],
)
def test_silence_around_a_track_is_left_out(track: list[float], left: list[float]) -> None:
    assert sounding(torch.tensor(track), 2).tolist() == pytest.approx(left)


@pytest.mark.parametrize("samples", [np.zeros(16_000, np.float32), tone(5e-5), tone(0)[:0]])
def test_silence_has_no_gain(samples: np.ndarray) -> None:
    assert measure_gain(torch.from_numpy(samples), 16_000) is None


def noise(seconds: float, decibels: float, *, slope: float = 0.0, hum: float = 0.0) -> np.ndarray:
    """Noise whose spectrum falls with f^slope, plus a 50 Hz hum with amplitude ``hum``."""
    n = int(seconds * 16_000)
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(n))
    spectrum /= np.maximum(np.fft.rfftfreq(n, 1 / 16_000), 20.0) ** slope
    values = np.fft.irfft(spectrum, n)
    values *= 10 ** (decibels / 20) / np.sqrt(np.mean(values**2))
    return values + hum * np.sin(2 * np.pi * 50 * np.arange(n) / 16_000)


def crackling(seconds: float, decibels: float) -> np.ndarray:
    """Noise with ten clicks a second that are 25 dB above it."""
    values, rng = noise(seconds, decibels), np.random.default_rng(1)
    at = rng.integers(0, len(values), int(10 * seconds))
    values[at] += 18 * 10 ** (decibels / 20) * rng.standard_normal(len(at))
    return values


def notes(seconds: float, level: float) -> np.ndarray:
    t = np.arange(int(seconds * 16_000)) / 16_000
    return level * np.sin(2 * np.pi * 440 * t) * np.exp(-6 * (t % 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    "between",
    [
        noise(20, -55),
        noise(20, -60, slope=0.5),
        noise(20, -60, slope=1.0),
        noise(20, -70, hum=3e-3),
        noise(20, -60) + 0.02,
        crackling(20, -60),
        notes(20, 5e-4),
    ],
    ids=["hiss", "pink", "rumble", "hum", "offset", "crackle", "far below"],
)
def test_what_nobody_hears_between_music_is_silenced(
    between: np.ndarray, dtype: torch.dtype
) -> None:
    whole = np.concatenate([notes(9.97, 0.3), between, notes(9.97, 0.3), between[: 4 * 16_000]])
    samples = torch.from_numpy(whole).to(dtype)
    heard = samples.clone()
    hush(heard, 16_000)
    n, tail = 159_520, 64_000
    end = len(heard) - tail
    assert not heard[n + 3_200 : n + 320_000 - 3_200].any()
    assert not heard[end + 3_200 :].any()
    assert heard[:n].equal(samples[:n])
    assert heard[end - n : end].equal(samples[end - n : end])


@pytest.mark.parametrize(
    "quiet",
    [
        noise(20, -48),
        notes(20, 4e-3),
        noise(2.5, -60),
        np.concatenate([notes(2.5, 0.02), noise(2.5, -60)]),
    ],
    ids=["hiss that is heard", "quiet notes", "a rest", "rests"],
)
def test_what_is_heard_beside_music_stays(quiet: np.ndarray) -> None:
    samples = torch.from_numpy(np.concatenate([notes(15, 0.3), quiet, notes(15, 0.3)])).float()
    heard = samples.clone()
    hush(heard, 16_000)
    assert heard.equal(samples)


@pytest.mark.parametrize(
    "alone", [noise(10, -60), notes(10, 1e-4), noise(0.05, -60), np.zeros(64_000), np.zeros(0)]
)
def test_a_quiet_track_stays(alone: np.ndarray) -> None:
    samples = torch.from_numpy(alone).float()
    heard = samples.clone()
    hush(heard, 16_000)
    assert heard.equal(samples)


def test_silent_windows_are_left_out_unless_all_are() -> None:
    windows = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 5e-5]])
    torch.testing.assert_close(audible(windows), windows[1:2])
    assert len(audible(windows[[0, 2]])) == 2


def test_a_track_is_brought_to_its_level_once() -> None:
    track = Track(torch.from_numpy(tone(0.03))[None], 16_000)
    levelled = track.levelled_at(8_000)
    assert levelled is not None
    samples, gain = levelled
    torch.testing.assert_close(samples, track.mono_at(8_000) * gain)
    assert measure_gain(samples, 8_000) == pytest.approx(1.0, abs=1e-3)
    again = track.levelled_at(8_000)
    assert again is not None
    assert again[0] is samples
    assert Track(torch.zeros(1, 16_000), 16_000).levelled_at(8_000) is None


def test_what_reaches_over_the_end_of_a_track_makes_no_window_of_the_next() -> None:
    music = torch.ones(20 * 16_000)
    ended, began = torch.zeros_like(music), torch.zeros_like(music)
    ended[:800], began[-32_000:] = 1.0, 1.0
    heard = audible(torch.stack([music, ended, began]))
    torch.testing.assert_close(heard, torch.stack([music, began]))
