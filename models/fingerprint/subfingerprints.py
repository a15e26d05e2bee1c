"""Sub-fingerprints: how a sound's bands change against their neighbours, a bit for each of 64.

Landmarks are what noise leaves of a sound's strongest points. This is the opposite: every band of
every eighth of a second says a little, no matter how weak it is, and a clip is compared with a
place as a whole. It costs a comparison with every place of every track, so it comes last.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.fingerprint.landmarks import HOP_LENGTH as FRAME_LENGTH
from models.fingerprint.landmarks import SAMPLE_RATE

N_FFT = 4096
HOP_LENGTH = 1378
"""Samples of `SAMPLE_RATE`: eight frames a second."""
HOP_FRAMES = HOP_LENGTH / FRAME_LENGTH
"""The same in frames of the landmarks."""
N_BANDS = 64
"""Semitones, from 79 Hz to 3 kHz."""
BANDS_AROUND = 8
"""A band is held against the mean of so many on either side, and itself."""
LOWEST_HZ = 50.0
"""Of the bands around the lowest one."""
LAG_FRAMES = 2
SMOOTHED_FRAMES = 2
REACH_FRAMES = LAG_FRAMES + SMOOTHED_FRAMES - 1
"""A change takes so many frames after its own."""

_FLOOR = 1e-4 * N_FFT / 4
"""Magnitude of a -80 dBFS sine under a Hann window, added to every band's."""
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
            float32 ``[n, N_BANDS]``, natural log of magnitude: what a band has over its neighbours,
            `LAG_FRAMES` later less now; ``[0, N_BANDS]`` for less than three quarters of a
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


def to_subfingerprints(changes: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Keep which bands rise; ``[n, N_BANDS]`` to ``[n]``. A band that does not change falls."""
    return np.packbits(changes > 0, axis=1).view(np.uint64)[:, 0]


def distances(
    kept: NDArray[np.uint64], asked: NDArray[np.uint64], step: int = 1
) -> NDArray[np.uint16]:
    """Count the bits by which a clip differs from what is kept.

    Args:
        kept: uint64 ``[N]``, sub-fingerprints of tracks.
        asked: uint64 ``[M]``, M ≤ N, those of a clip.
        step: Take every so many-th of both alone.

    Returns:
        uint16, at every so many-th place, the last that M or a few less fit into.
    """
    asked = asked[::step]
    n_places = (len(kept) - len(asked) * step + step - 1) // step + 1
    found = np.zeros(n_places, np.uint16)
    differs, bits = np.empty(_PLACES_AT_ONCE, np.uint64), np.empty(_PLACES_AT_ONCE, np.uint8)
    for begin in range(0, n_places, _PLACES_AT_ONCE):
        part = found[begin : begin + _PLACES_AT_ONCE]
        n = len(part)
        there = np.ascontiguousarray(kept[begin * step : (begin + n + len(asked)) * step : step])
        for i, wanted in enumerate(asked):
            np.bitwise_xor(there[i : i + n], wanted, out=differs[:n])
            part += np.bitwise_count(differs[:n], out=bits[:n])
    return found


_PLACES_AT_ONCE = 1 << 15
"""256 kB: what is compared stays in a core's own cache."""


def correlate(
    kept: NDArray[np.uint64], places: NDArray[np.int64], changes: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Correlate a clip's changes, as large as they are, with the bits that are kept.

    Args:
        kept: uint64 ``[N]``, sub-fingerprints of tracks.
        places: int64 ``[P]``, where the clip may begin, 0 to N - M.
        changes: float32 ``[M, N_BANDS]``, of the clip, as `weigh` gives them.

    Returns:
        ``[P]``, -1 to 1.
    """
    weights = changes.reshape(-1)
    scale = max(float(np.abs(weights).sum()), 1e-6)
    found = np.zeros(len(places), np.float32)
    for begin in range(0, len(places), _CORRELATED_AT_ONCE):
        part = places[begin : begin + _CORRELATED_AT_ONCE]
        rows = kept[part[:, None] + np.arange(len(changes))]
        bits = np.unpackbits(rows.view(np.uint8), axis=1).astype(np.float32)
        found[begin : begin + len(part)] = (2 * (bits @ weights) - weights.sum()) / scale
    return found


_CORRELATED_AT_ONCE = 256
"""Six MB for a clip of 12 s."""


def weigh(changes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bound a clip's changes to ±1: noise makes large ones too. Silence stays 0."""
    bounded: NDArray[np.float32] = np.tanh(changes / max(float(changes.std()), 1e-6))
    return bounded


def _triangles() -> NDArray[np.float32]:
    """Sum magnitudes to semitones: float32 ``[bins, bands]``, each to its neighbours' centres."""
    n_bands = N_BANDS + 2 * BANDS_AROUND
    edges = LOWEST_HZ * 2 ** ((np.arange(n_bands + 2) - 1) / 12)
    hz = np.fft.rfftfreq(N_FFT, 1 / SAMPLE_RATE)[:, None]
    rising = (hz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
