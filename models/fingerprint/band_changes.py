"""How a sound's bands change relative to their neighbours; sub-fingerprints are made from this."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.fingerprint.landmarks import SAMPLE_RATE
from models.fingerprint.subfingerprints import HOP_LENGTH, N_BANDS

N_FFT = 4096
BANDS_AROUND = 8
"""A band is compared with the mean of itself and this many bands on either side."""
LOWEST_HZ = 50.0
"""Lowest frequency of the bands that surround the lowest one."""
LAG_FRAMES = 2
SMOOTHED_FRAMES = 2
REACH_FRAMES = LAG_FRAMES + SMOOTHED_FRAMES - 1
"""Later frames that a change depends on."""

_FLOOR = 1e-4 * N_FFT / 4
"""Magnitude of a -80 dBFS sine under a Hann window, added to that of every band."""
_AT_ONCE = 512


class BandChangeModel(nn.Module):
    """Measures how bands change; see `forward`."""

    window: Tensor
    bands: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        self.register_buffer("bands", torch.from_numpy(_triangles()), persistent=False)

    @torch.inference_mode()
    def forward(self, samples: Tensor) -> Tensor:
        """Measure a sound's changes.

        Args:
            samples: float32 ``[T]`` at `SAMPLE_RATE`, full scale ±1.

        Returns:
            float32 ``[n, N_BANDS]``, natural log of magnitude: by how much a band's excess over its
            neighbours grows in `LAG_FRAMES`; ``[0, N_BANDS]`` for less than three quarters of a
            second. Frame k begins at sample k times `HOP_LENGTH`.

        References:
            Haitsma & Kalker, "A highly robust audio fingerprinting system", ISMIR 2002, whose
            neighbours are one band and one frame.
        """
        n_frames = (len(samples) - N_FFT) // HOP_LENGTH + 1
        if n_frames <= REACH_FRAMES:
            return samples.new_zeros(0, N_BANDS)
        frames = samples.unfold(0, N_FFT, HOP_LENGTH)
        levels = torch.cat([self._contrast(part) for part in torch.split(frames, _AT_ONCE)])
        smooth = levels.unfold(0, SMOOTHED_FRAMES, 1).mean(dim=-1)
        return smooth[LAG_FRAMES:] - smooth[:-LAG_FRAMES]

    def _contrast(self, frames: Tensor) -> Tensor:
        """Log magnitude of bands over the mean of those around; ``[n, N_FFT]`` to ``[n, B]``."""
        level = torch.log(torch.fft.rfft(frames * self.window).abs() @ self.bands + _FLOOR)
        around = level.unfold(1, 2 * BANDS_AROUND + 1, 1).mean(dim=-1)
        return level[:, BANDS_AROUND:-BANDS_AROUND] - around


def _triangles() -> NDArray[np.float32]:
    """Weights from bins to semitones, float32 ``[bins, bands]``, up to the neighbours' centres."""
    n_bands = N_BANDS + 2 * BANDS_AROUND
    edges = LOWEST_HZ * 2 ** ((np.arange(n_bands + 2) - 1) / 12)
    hz = np.fft.rfftfreq(N_FFT, 1 / SAMPLE_RATE)[:, None]
    rising = (hz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
