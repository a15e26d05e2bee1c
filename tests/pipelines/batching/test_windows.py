"""Windows: fixed length, last one ends with the track."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelines.batching.windows import LazyWindows, WindowSpec, cut, window_starts


def spec(length: int, hop: int, max_windows: int = 0) -> WindowSpec:
    return WindowSpec(sample_rate=100, length=length, hop=hop, max_windows=max_windows)


def test_the_last_window_is_shifted_back() -> None:
    assert window_starts(1050, spec(400, 400)) == [0, 400, 650]
    assert window_starts(800, spec(400, 400)) == [0, 400]
    assert window_starts(801, spec(400, 200)) == [0, 200, 400, 401]


def test_a_short_track_is_padded_at_its_end() -> None:
    assert window_starts(3, spec(8, 4)) == [0]
    windows = cut(torch.tensor([1.0, 2, 3]), [0], 5)
    assert windows.tolist() == [[1, 2, 3, 0, 0]]
    stereo = cut(torch.ones(2, 3), [0], 4)
    assert stereo.tolist() == [[[1, 1, 1, 0], [1, 1, 1, 0]]]


def test_lazy_windows_are_made_when_they_are_taken() -> None:
    made: list[float] = []

    def make(part: slice) -> torch.Tensor:
        numbers = torch.arange(4.0)[part]
        made.extend(numbers.tolist())
        return numbers[:, None].expand(-1, 3)

    windows = LazyWindows(torch.Size((4, 3)), torch.float32, make)
    assert (len(windows), made) == (4, [])
    assert windows[1:3].tolist() == [[1, 1, 1], [2, 2, 2]]
    assert windows[3:9].tolist() == [[3, 3, 3]]
    assert made == [1, 2, 3]


def test_a_cap_spreads_windows_over_the_track() -> None:
    starts = window_starts(10_000, spec(100, 100, max_windows=5))
    assert starts == [0, 2500, 5000, 7400, 9900]


@given(
    n_samples=st.integers(1, 5000),
    length=st.integers(1, 600),
    hop=st.integers(1, 600),
    max_windows=st.integers(0, 9),
)
def test_every_window_lies_in_the_track_and_both_ends_are_covered(
    n_samples: int, length: int, hop: int, max_windows: int
) -> None:
    starts = window_starts(n_samples, spec(length, hop, max_windows))
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    if n_samples > length:
        assert all(start + length <= n_samples for start in starts)
        if max_windows != 1:
            assert starts[-1] == n_samples - length
        if not max_windows:
            assert all(b - a <= hop for a, b in pairwise(starts))
    if max_windows:
        assert len(starts) <= max_windows
    samples = np.arange(n_samples, dtype=np.float32)
    windows = cut(torch.from_numpy(samples), starts, length)
    assert windows.shape == (len(starts), length)
    assert windows.dtype == torch.float32
    assert windows[:, 0].tolist() == starts
