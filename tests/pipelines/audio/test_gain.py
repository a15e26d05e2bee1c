import numpy as np
import pytest
import torch

from models.loudness import integrated_loudness
from pipelines.audio.gain import TARGET_LUFS, audible, measure_gain


def tone(level: float) -> np.ndarray:
    t = np.arange(16_000 * 3) / 16_000
    return (level * np.sin(2 * np.pi * 997 * t)).astype(np.float32)


@pytest.mark.parametrize("level", [1.0, 0.1, 0.003])
def test_the_gain_brings_any_track_to_the_target(level: float) -> None:
    gain = measure_gain(torch.from_numpy(tone(level)), 16_000)
    assert gain is not None
    levelled = torch.from_numpy(tone(level) * gain)[None, None].float()
    assert float(integrated_loudness(levelled, 16_000)) == pytest.approx(TARGET_LUFS, abs=0.05)


@pytest.mark.parametrize("samples", [np.zeros(16_000, np.float32), tone(5e-5), tone(0)[:0]])
def test_silence_has_no_gain(samples: np.ndarray) -> None:
    assert measure_gain(torch.from_numpy(samples), 16_000) is None


def test_silent_windows_are_left_out_unless_all_are() -> None:
    windows = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 5e-5]])
    torch.testing.assert_close(audible(windows), windows[1:2])
    assert len(audible(windows[[0, 2]])) == 2
