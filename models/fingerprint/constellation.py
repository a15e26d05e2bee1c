"""Spectral landmarks: the constellation of a sound's local maxima, which survives codecs and noise.

Every choice here is local in time and frequency, so a clip's landmarks are those of the whole track
at the same place. Landmarks keep their position between bins and frames, so that hashes can be made
which do not depend on playback speed (`models.fingerprint.hashes`).
"""

from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as torch_f
from torch import Tensor, nn

from models.fingerprint.evidence import EvidenceNetwork, to_steps
from models.fingerprint.landmarks import (
    FRAME_S,
    HOP_LENGTH,
    LOWEST_BIN,
    MODEL_ID,
    N_BINS,
    N_FFT,
    SAMPLE_RATE,
)

BINS_AROUND = 8
FRAMES_AROUND = 12
"""A landmark is the loudest point of 17 bins (183 Hz) by 25 frames (0.58 s)."""
DENSE_BINS_AROUND = 5
DENSE_FRAMES_AROUND = 8
DENSE_PER_S = 50.0
"""A clip that is hard to recognise is looked up with more: also the loudest points of 118 Hz by
0.4 s, the most prominent first, up to this many in all. They compensate for few usual ones."""
WINDOW_FRAMES = 688
"""Frames in a window: 16 s."""
MARGIN_FRAMES = 34
"""At a window's edges the surroundings are missing: the neighbour supplies landmarks there."""
WINDOW_LENGTH = N_FFT + HOP_LENGTH * (WINDOW_FRAMES - 1)
MAX_LANDMARKS = 1024
"""Per window; music has 450 to 600, and being local maxima limits their number."""

_FLOOR = 1e-4 * N_FFT / 4
"""Magnitude of a -80 dBFS sine under a Hann window; dither and digital silence are below it."""
_TINY = 1e-14
_LEVEL_BINS = 49
_LEVEL_FRAMES = 65
"""A landmark's prominence is its level over the mean of 527 Hz and 1.5 s around it."""


class LandmarkModel(nn.Module):
    """Finds landmarks in batches of windows, and the evidence of hidden ones."""

    model_id = MODEL_ID
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        self.evidence = EvidenceNetwork.shipped()

    @torch.inference_mode()
    def forward(self, windows: Tensor, *, is_dense: bool = False) -> Mapping[str, Tensor]:
        """Find the landmarks of each window.

        Args:
            windows: float32 ``[B, T]`` at `SAMPLE_RATE`, full scale ±1, T ≥ `N_FFT`.
            is_dense: Find `DENSE_PER_S` of them, including all usual ones, and weigh every point.

        Returns:
            ``frames`` (from the window's start; -1 where there is no landmark), ``pitches`` (log2
            Hz) and ``prominences``, each float32 ``[B, MAX_LANDMARKS]``, in no particular order;
            and ``are_extra``, of the same shape, 1 for those that only a dense answer has. Silence
            has no landmarks. A row equals the same window alone. A dense answer also has
            ``evidence``: int8 ``[B, N_BINS, N]``, bins from `LOWEST_BIN` on, in steps of
            `models.fingerprint.evidence.STEP`.

        References:
            Wang, "An industrial-strength audio search algorithm", ISMIR 2003 (the constellation);
            Smith & Serra, PARSHL, 1987 (parabolic interpolation of log magnitudes).
        """
        level = measure_level(windows, self.window)
        b, f, n = level.shape
        over_mean = measure_prominence(level)
        is_usual = level == _local_maximum(level, BINS_AROUND, FRAMES_AROUND)
        is_landmark = is_usual
        found: dict[str, Tensor] = {}
        if is_dense:
            distance = measure_distance(level)
            is_landmark = distance == 0
            found["evidence"] = to_steps(self.evidence(over_mean, distance))
        is_landmark = is_landmark & (level > float(np.log(_FLOOR)))
        is_landmark[:, 0] = is_landmark[:, -1] = False
        is_landmark[:, :, 0] = is_landmark[:, :, -1] = False

        prominence = torch.where(is_landmark, over_mean, -torch.inf)
        k = min(MAX_LANDMARKS, f * n)
        # The usual ones come first, whatever their prominence.
        first, where = (prominence + _FIRST * is_usual).reshape(b, -1).topk(k)
        strongest = prominence.reshape(b, -1).gather(1, where)
        are_extra = ~is_usual.reshape(b, -1).gather(1, where)
        is_within = torch.arange(k, device=level.device) < DENSE_PER_S * n * FRAME_S
        exists = torch.isfinite(first) & (is_within | ~are_extra)
        flat = level.reshape(b, -1)
        where = torch.where(exists, where, n + 1)  # any inner point: its neighbours exist
        centre = flat.gather(1, where)
        bins = where // n + LOWEST_BIN
        frames = where % n
        bin_shift = _vertex(flat.gather(1, where - n), centre, flat.gather(1, where + n))
        frame_shift = _vertex(flat.gather(1, where - 1), centre, flat.gather(1, where + 1))
        pitches = torch.log2((bins + bin_shift) * (SAMPLE_RATE / N_FFT))
        measures = {
            "frames": torch.where(exists, frames + frame_shift, -1.0),
            "pitches": torch.where(exists, pitches, 0.0),
            "prominences": torch.where(exists, strongest, 0.0),
            "are_extra": are_extra & exists,
        }
        return found | {
            name: torch_f.pad(values.float(), (0, MAX_LANDMARKS - k), value=_PADDING[name])
            for name, values in measures.items()
        }


_PADDING = {"frames": -1.0, "pitches": 0.0, "prominences": 0.0, "are_extra": 0.0}
_FIRST = 100.0
"""More than any prominence, which is a logarithm."""


def measure_level(windows: Tensor, window: Tensor) -> Tensor:
    """Return the level of a landmark's band.

    Args:
        windows: float32 ``[B, T]`` at `SAMPLE_RATE`, full scale ±1, T ≥ `N_FFT`.
        window: float32 ``[N_FFT]``, Hann.

    Returns:
        Natural log of magnitude, float32 ``[B, N_BINS, N]``, bins from `LOWEST_BIN` on; -16.1 in
        silence.
    """
    spectrum = torch.stft(
        windows, N_FFT, HOP_LENGTH, window=window, center=False, return_complex=True
    )
    power = spectrum[:, LOWEST_BIN : LOWEST_BIN + N_BINS].abs().square()
    return 0.5 * torch.log(_smooth(power) + _TINY)


def measure_prominence(level: Tensor) -> Tensor:
    """Level ``[B, F, N]`` over the mean around each point; 0 in silence."""
    return level - _local_mean(level)


def measure_distance(level: Tensor) -> Tensor:
    """Level ``[B, F, N]`` over the largest one nearby: 0 at a dense landmark, else negative."""
    return level - _local_maximum(level, DENSE_BINS_AROUND, DENSE_FRAMES_AROUND)


def _smooth(power: Tensor) -> Tensor:
    """Average over five frames with triangular weights; ``[B, F, N]`` to the same shape.

    Neighbouring frames share the music but only three quarters of the noise: this keeps 13 % more
    of a clean clip's hashes, and as many more in noise at 5 dB.
    """
    return torch_f.avg_pool2d(torch_f.avg_pool2d(power, (1, 3), 1, (0, 1)), (1, 3), 1, (0, 1))


def _local_maximum(level: Tensor, bins: int, frames: int) -> Tensor:
    """Largest value within some bins and frames; ``[B, F, N]`` to the same shape."""
    padded = torch_f.pad(level, (frames, frames, bins, bins), value=-torch.inf)
    over_frames = _pool(padded, 2 * frames + 1, 2, torch.maximum)
    return _pool(over_frames, 2 * bins + 1, 1, torch.maximum)


def _local_mean(level: Tensor) -> Tensor:
    """Mean level around each point; ``[B, F, N]`` to the same shape, edges repeated."""
    bins, frames = _LEVEL_BINS // 2, _LEVEL_FRAMES // 2
    padded = torch_f.pad(level[None], (frames, frames, bins, bins), mode="replicate")[0]
    over_frames = _pool(padded, _LEVEL_FRAMES, 2, torch.add)
    return _pool(over_frames, _LEVEL_BINS, 1, torch.add) / (_LEVEL_FRAMES * _LEVEL_BINS)


def _pool(values: Tensor, size: int, dim: int, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Join ``size`` neighbours along a dimension, by a sum or the larger of two.

    torch's pooling looks at each of them. Here spans of 2, 4, 8 and so on are each joined from two
    of half the length, and then those that add up to the size; no neighbour counts twice.

    Args:
        values: ``[B, F, N]``.
        size: Number of neighbours.
        dim: Their dimension.
        join: Joins two tensors of the same shape.

    Returns:
        The joined values, shorter by ``size - 1`` along ``dim``.
    """
    n = values.shape[dim] - size + 1
    parts = []
    begin, span = 0, 1
    while span <= size:
        if size & span:
            parts.append(values.narrow(dim, begin, n))
            begin += span
        if 2 * span <= size:
            rest = values.shape[dim] - span
            values = join(values.narrow(dim, 0, rest), values.narrow(dim, span, rest))
        span *= 2
    return reduce(join, parts)


def _vertex(before: Tensor, centre: Tensor, after: Tensor) -> Tensor:
    """Position of the top of a parabola through three points, -0.5 to 0.5; 0 for a plateau."""
    curvature = before - 2 * centre + after
    is_curved = curvature < -1e-6
    shift = 0.5 * (before - after) / torch.where(is_curved, curvature, 1.0)
    return torch.where(is_curved, shift.clamp(-0.5, 0.5), 0.0)
