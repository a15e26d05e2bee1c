"""Windows on a frame grid join to what the whole track gives."""

import numpy as np
import pytest
import torch

from pipelines.batching.framed import FrameGrid, pad_to


def moving_sum(windows: torch.Tensor) -> torch.Tensor:
    """Per frame of 10 samples: sum of this frame, the three before and the one behind."""
    frames = torch.nn.functional.pad(windows.unfold(-1, 10, 10).sum(-1), (3, 1))
    return frames.unfold(-1, 5, 1).sum(-1)


@pytest.mark.parametrize("n_samples", [5, 10, 195, 200, 201, 345, 1000, 1234])
def test_windows_equal_the_whole(n_samples: int) -> None:
    samples = np.random.default_rng(n_samples).normal(size=n_samples).astype(np.float32)
    grid = FrameGrid(1000, 10, 20, lead=3, tail=1)
    joined = grid.join(moving_sum(grid.windows(samples)), n_samples)
    padded = np.pad(samples, (0, -n_samples % 10))
    whole = moving_sum(torch.from_numpy(padded)[None])[0]
    assert len(joined) == grid.count(n_samples) == len(whole)
    torch.testing.assert_close(joined, whole)


@pytest.mark.parametrize("n_samples", [7, 30, 215, 1000])
def test_overhanging_frames(n_samples: int) -> None:
    samples = np.random.default_rng(0).normal(size=n_samples).astype(np.float32)
    grid = FrameGrid(1000, 10, 20, overhang=15)
    rows = grid.windows(samples).unfold(-1, 25, 10).sum(-1)
    joined = grid.join(rows, n_samples)
    padded = np.pad(samples, (0, grid.count(n_samples) * 10 + 15 - n_samples))
    torch.testing.assert_close(joined, torch.from_numpy(padded).unfold(-1, 25, 10).sum(-1))


def test_padded_samples_are_not_copied() -> None:
    grid = FrameGrid(1000, 10, 20, lead=3, tail=1)
    samples = np.ones(345, dtype=np.float32)
    padded = pad_to(samples, 1000)
    windows = grid.windows(padded, 345)
    torch.testing.assert_close(windows, grid.windows(samples))
    assert windows.data_ptr() == padded.ctypes.data
    assert pad_to(padded, 500) is padded


def test_stereo() -> None:
    grid = FrameGrid(1000, 10, 20, channels=2)
    assert grid.windows(np.zeros((2, 333), dtype=np.float32)).shape == (2, 2, 200)
    assert grid.spec.channels == 2
