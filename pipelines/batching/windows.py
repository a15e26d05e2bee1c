"""Fixed-length windows: the only thing a batched model ever sees.

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
        max_windows: Analyse at most so many windows, spread evenly over the track; 0 means all.
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
    """Return how many windows a forward takes where nothing else is said.

    On the CPU a third gains nothing, and more leave its caches (`docs/benchmarks/cost.md`).
    """
    return 2 if device.type == "cpu" else 16


class Windows(Protocol):
    """Windows of a track ``[W, …, T]``, of which a few are taken at a time, as of a tensor."""

    @property
    def shape(self) -> torch.Size:
        """All of them."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of every window."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class LazyWindows:
    """Windows that are made when they are taken: of a long track there is no second copy.

    Attributes:
        shape: ``[W, …, T]``.
        dtype: Of every window.
        make: Which of them → ``[w, …, T]``, each time they are asked for.
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
    """Repeat ``[…, T]``, T ≥ 1, to fill ``length`` samples, or cut it to them."""
    times = -(-length // samples.shape[-1])
    whole = samples if times == 1 else torch.cat([samples] * times, dim=-1)
    return whole[..., :length]


def cut(samples: Tensor, starts: list[int], length: int) -> Tensor:
    """Stack windows of ``[T]`` or ``[C, T]`` to ``[W, …, length]``, zero-padding a short track."""
    short = length - samples.shape[-1]
    if short > 0:
        samples = functional.pad(samples, (0, short))
    return torch.stack([samples[..., s : s + length] for s in starts])
