"""Loudness of a track, measured in windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from models.loudness import gated_loudness, gated_range, peak, step_energies, step_length, to_dbtp
from pipelines.audio.waveform import SAMPLE_RATE
from pipelines.batching.framed import FrameGrid, pad_to
from pipelines.batching.windows import LazyWindows, Windows

# 30 s, the length of every forward; one step of lead-in covers the filter's response.
GRID = FrameGrid(SAMPLE_RATE, step_length(SAMPLE_RATE), 300, lead=1, channels=2)

_TRIM_STEPS = 25
"""On a CPU the last window is cut to a multiple of this many steps, 2.5 s."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Loudness of a track.

    Attributes:
        loudness_lufs: Integrated; silence gives -70.
        range_lu: EBU R128 loudness range.
        true_peak_dbtp: Silence gives -120.
        steps_lufs: K-weighted level of every 100 ms, ``[N]``, at least -70.
    """

    loudness_lufs: float
    range_lu: float
    true_peak_dbtp: float
    steps_lufs: NDArray[np.float64]


class LevelModel:
    """K-weighted energies and the peak as a windowed model.

    Outputs ``energies [B, 300]`` and ``peak [B]``. A track has two of these models on the same
    grid: one for the windows that lie wholly inside the track, which are a view of its samples, and
    one for the last window, which reaches beyond the end. The largest array is thus never copied.
    Windows have two channels; for mono, the second is empty and adds nothing.
    """

    def __init__(self, device: torch.device, *, is_end: bool = False) -> None:
        self.model_id = "bs1770-end" if is_end else "bs1770"
        self._is_end = is_end
        self.grid, self.spec = GRID, GRID.spec
        self._device = device

    def windows(self, samples: Tensor) -> Windows:
        """Cut ``[C, T]``, C = 1 or 2, into windows ``[W, 2, length]``; the end is always one."""
        n, length, hop = samples.shape[1], self.spec.length, self.spec.hop
        n_whole = max(0, self.grid.n_windows(n) - 1)
        if self._is_end:
            end = samples[:, n_whole * hop :]
            if self._device.type == "cpu":
                block = _TRIM_STEPS * self.grid.hop_length
                length = max(1, -(-end.shape[1] // block)) * block
            return _with_two_channels(pad_to(end, length))[None]
        shape = torch.Size((n_whole, 2, length))
        if not n_whole:
            return samples.new_empty(shape)
        whole = samples.unfold(-1, length, hop).movedim(-2, 0)[:n_whole]
        if len(samples) == 2:
            return whole
        return LazyWindows(shape, samples.dtype, lambda part: _with_two_channels(whole[part]))

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """See `WindowedModel`."""
        on_device = windows.to(self._device, torch.float32)
        energies = step_energies(on_device, SAMPLE_RATE)
        # The missing part of a last window is silence.
        return {"energies": pad_to(energies, self.grid.n_frames), "peak": peak(on_device)}


def _with_two_channels(samples: Tensor) -> Tensor:
    """Append an empty channel to ``[…, 1, T]``; leave ``[…, 2, T]`` as it is."""
    return samples if samples.shape[-2] == 2 else functional.pad(samples, (0, 0, 0, 1))


def join_levels(parts: Sequence[Mapping[str, Tensor]], n_samples: int) -> Levels:
    """Gate the joined energies of a track of ``n_samples`` samples.

    The last, incomplete step does not count unless the track is shorter than one.

    Args:
        parts: The rows of `LevelModel`'s windows, in chronological order.
        n_samples: Length of the track.
    """
    energies = GRID.join(torch.cat([rows["energies"] for rows in parts]), n_samples)
    energies = energies[: max(1, n_samples // GRID.hop_length)][None]
    steps = -0.691 + 10.0 * torch.log10(energies[0].double().clamp_min(1e-12))
    return Levels(
        loudness_lufs=float(gated_loudness(energies)),
        range_lu=float(gated_range(energies)),
        true_peak_dbtp=float(to_dbtp(torch.cat([rows["peak"] for rows in parts]).max())),
        steps_lufs=steps.clamp_min(-70.0).numpy(),
    )
