"""Sample-rate conversion on the CPU, the same for every model: soxr HQ."""

import numpy as np
from numpy.typing import NDArray


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
