"""Fixed-length windows: the only input of a batched model.

Padding leaks through group norms and attention, so a track is cut into windows of one length, and
the last window is shifted back to end where the track ends. Only a track shorter than one window is
padded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """How one model wants its audio.

    Attributes:
        sample_rate: Hz.
        length: Samples in a window.
        hop: Samples between the starts of two windows.
        channels: 1 (downmixed) or 2 (mono input is one channel).
        max_windows: Maximum number of windows, spread evenly over the track; 0 means all.
    """

    sample_rate: int
    length: int
    hop: int
    channels: int = 1
    max_windows: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of one window."""
        return self.length * self.channels * np.dtype(np.float32).itemsize


def most_windows(device: torch.device) -> int:
    """Return the default number of windows in a forward.

    On the CPU a third gains nothing, and more exceed its caches (`docs/benchmarks/cost.md`).
    """
    return 2 if device.type == "cpu" else 16


class Windows(Protocol):
    """Windows of a track ``[W, …, T]``, taken a few at a time by slicing, as from a tensor."""

    @property
    def shape(self) -> torch.Size:
        """Shape of all of them."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of every window."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class LazyWindows:
    """Windows that are made when they are taken, so that a long track has no second copy.

    Attributes:
        shape: ``[W, …, T]``.
        dtype: Type of every window.
        make: Slice of windows → ``[w, …, T]``; called on each access.
    """

    shape: torch.Size
    dtype: torch.dtype
    make: Callable[[slice], Tensor]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice, /) -> Tensor:
        return self.make(part)


class WindowedModel(Protocol):
    """A network or a piece of signal processing that maps windows to outputs, row by row.

    A row of a batch equals the same window alone. `forward` runs on the device and includes the
    front-end (STFT, mel, VQT).
    """

    model_id: str
    spec: WindowSpec

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """Map float32 windows ``[B, T]`` (``[B, C, T]`` if stereo) to named outputs ``[B, …]``."""
        ...


def window_starts(n_samples: int, spec: WindowSpec) -> list[int]:
    """Return the first sample of every window; the last window ends at the track's end."""
    if n_samples <= spec.length:
        return [0]
    last = n_samples - spec.length
    starts = [*range(0, last, spec.hop), last]
    if spec.max_windows and len(starts) > spec.max_windows:
        picks = np.linspace(0, len(starts) - 1, spec.max_windows).round().astype(int)
        starts = [starts[i] for i in picks]
    return starts


def repeated(samples: Tensor, length: int) -> Tensor:
    """Repeat ``[…, T]``, T ≥ 1, to fill ``length`` samples, or truncate it to that length."""
    times = -(-length // samples.shape[-1])
    whole = samples if times == 1 else torch.cat([samples] * times, dim=-1)
    return whole[..., :length]


def cut(samples: Tensor, starts: list[int], length: int) -> Tensor:
    """Stack windows of ``[T]`` or ``[C, T]`` as ``[W, …, length]``, zero-padding a short track."""
    short = length - samples.shape[-1]
    if short > 0:
        samples = functional.pad(samples, (0, short))
    return torch.stack([samples[..., s : s + length] for s in starts])
