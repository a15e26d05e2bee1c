"""Sample-rate conversion on the CPU, the same for every model: soxr HQ."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.audio.waveform import Samples, Waveform

_STRETCH = 1 << 18
"""Samples mixed and converted at a time: this many fit into a processor's cache."""


def resample(
    samples: NDArray[np.float32], sample_rate: int, target_rate: int
) -> NDArray[np.float32]:
    """Convert the sample rate with soxr's HQ recipe (20 bit, linear phase).

    Args:
        samples: float32 ``[T]`` or ``[C, T]``, full scale ±1.
        sample_rate: Hz of ``samples``.
        target_rate: Hz wanted; equal rates return ``samples`` itself.

    Returns:
        float32 ``[T']`` or ``[C, T']`` with T' = T · target / sample rate, within one
        sample; silence stays silence, an empty input stays empty.
    """
    if sample_rate == target_rate or samples.shape[-1] == 0:
        return samples
    import soxr

    # soxr wants frames first.
    converted = soxr.resample(samples.T, sample_rate, target_rate, quality="HQ")
    result: NDArray[np.float32] = np.ascontiguousarray(converted.T, dtype=np.float32)
    return result


def mono_at(
    waveform: Waveform,
    target_rate: int,
    n_behind: int = 0,
    precision: type[np.floating[Any]] | None = None,
) -> Samples:
    """Mix a track down and convert its sample rate, a stretch at a time.

    The same as `resample` of `Waveform.mono`, without a copy of the whole track at its own rate,
    and in the track's precision unless another is given.

    Args:
        waveform: The track.
        target_rate: Hz wanted.
        n_behind: Number of zeros to append.
        precision: Type of the result.

    Returns:
        ``[T' + n_behind]``, owned by the caller.
    """
    n, rate = waveform.samples.shape[1], waveform.sample_rate
    most = math.ceil(n * target_rate / rate) + 1
    result: Samples = np.zeros(most + n_behind, precision or waveform.samples.dtype)
    if rate == target_rate or n == 0:
        result[:n] = waveform.mono()
        return result[: n + n_behind]
    import soxr

    stream = soxr.ResampleStream(rate, target_rate, 1, dtype="float32", quality="HQ")
    length = 0
    for start in range(0, n, _STRETCH):
        block = Waveform(waveform.samples[:, start : start + _STRETCH], rate).mono()
        converted = stream.resample_chunk(block, last=start + _STRETCH >= n)
        result[length : length + len(converted)] = converted
        length += len(converted)
    return result[: length + n_behind]
