"""Windows on a frame grid, joined, equal the result of the whole track."""

import pytest
import torch

from pipelines.batching.framed import FrameGrid, pad_to, up_to_silence


def moving_sum(windows: torch.Tensor) -> torch.Tensor:
    """Return the sum of each frame of 10 samples, the three frames before it and the one after."""
    frames = torch.nn.functional.pad(windows.unfold(-1, 10, 10).sum(-1), (3, 1))
    return frames.unfold(-1, 5, 1).sum(-1)


@pytest.mark.parametrize("n_samples", [5, 10, 195, 200, 201, 345, 1000, 1234])
def test_windows_equal_the_whole(n_samples: int) -> None:
    samples = torch.randn(n_samples, generator=torch.Generator().manual_seed(n_samples))
    grid = FrameGrid(1000, 10, 20, lead=3, tail=1)
    joined = grid.join(moving_sum(grid.windows(samples)), n_samples)
    whole = moving_sum(pad_to(samples, n_samples + -n_samples % 10)[None])[0]
    assert len(joined) == grid.count(n_samples) == len(whole)
    torch.testing.assert_close(joined, whole)


@pytest.mark.parametrize("n_samples", [7, 30, 215, 1000])
def test_overhanging_frames(n_samples: int) -> None:
    samples = torch.randn(n_samples, generator=torch.Generator().manual_seed(0))
    grid = FrameGrid(1000, 10, 20, overhang=15)
    rows = grid.windows(samples).unfold(-1, 25, 10).sum(-1)
    joined = grid.join(rows, n_samples)
    padded = pad_to(samples, grid.count(n_samples) * 10 + 15)
    torch.testing.assert_close(joined, padded.unfold(-1, 25, 10).sum(-1))


def test_padded_samples_are_not_copied() -> None:
    grid = FrameGrid(1000, 10, 20, lead=3, tail=1)
    samples = torch.ones(345)
    padded = pad_to(samples, 1000)
    windows = grid.windows(padded, 345)
    torch.testing.assert_close(windows, grid.windows(samples))
    assert windows.data_ptr() == padded.data_ptr()
    assert pad_to(padded, 500) is padded


def test_stereo() -> None:
    grid = FrameGrid(1000, 10, 20, channels=2)
    assert grid.windows(torch.zeros(2, 333)).shape == (2, 2, 200)
    assert grid.spec.channels == 2


@pytest.mark.parametrize("n_samples", [5, 35, 45, 130, 200])
def test_a_short_track_pays_no_whole_window(n_samples: int) -> None:
    samples = torch.randn(n_samples, generator=torch.Generator().manual_seed(n_samples))
    grid, trimmed = (FrameGrid(1000, 10, 20, lead=3, tail=1, trim=trim) for trim in (0, 5))
    windows = trimmed.windows(samples)
    assert windows.shape == (1, min(200, -(-(grid.count(n_samples) + 2) // 5) * 50))
    torch.testing.assert_close(
        trimmed.join(moving_sum(windows), n_samples),
        grid.join(moving_sum(grid.windows(samples)), n_samples),
    )


@pytest.mark.parametrize("overhang", [0, 15])
@pytest.mark.parametrize("trim", [1, 4])
@pytest.mark.parametrize("n_heard", [0, 1, 95, 651, 1400, 1500])
def test_silence_behind_the_sound_is_computed_once(n_heard: int, trim: int, overhang: int) -> None:
    windows = torch.zeros(2, 150 * 10 + overhang)
    windows[0, :n_heard] = torch.randn(n_heard, generator=torch.Generator().manual_seed(0))
    windows[1] = 1.0
    n_computed = []

    def forward(window: torch.Tensor) -> torch.Tensor:
        frames = moving_sum(window[:, : window.shape[1] - overhang])[..., None]
        n_computed.append(frames.shape[1])
        return frames

    found = up_to_silence(windows, 10, forward, overhang=overhang, before=3, behind=1, trim=trim)
    assert n_computed[0] <= min(150, -(-n_heard // 10) + 6 + trim - 1)
    torch.testing.assert_close(found, moving_sum(windows[:, :1500])[..., None])
