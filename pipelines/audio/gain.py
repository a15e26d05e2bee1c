"""The one loudness at which networks hear tracks, and what counts as silence."""

import torch
from torch import Tensor

from models.loudness import SILENCE_LUFS, integrated_loudness

TARGET_LUFS = -14.0
"""Level at which every network hears a track: Spotify's playback level.

Log-mel networks answer to the level: 12 dB move VibeNet's energy by a quarter, and musicnn's
embedding of one and the same track to a cosine of .69 (15 recordings of the evaluation set, mean;
.23 at worst). So one level is fixed for all of them, and a track's master does not matter. Why this
one: over 27 clips the mean shift against a clip's own level is +.06 in VibeNet's energy and -.01 in
acousticness at -14 LUFS, +.13 and -.03 at -11, -.10 and +.04 at -23; energy spreads as far as at
the clips' own levels. Bringing the peak to 0 dBFS shifts as little, but one click or a lossy codec
moves the peak.
"""

SILENCE_PEAK = 1e-4
"""-80 dBFS: what stays below it has no content."""

_PARTS, _LEAST_PARTS = 20, 2
"""Of a window, and how many of them have to sound: where a track ends, a sample or two of the next
window do."""


def peak_of(samples: Tensor) -> float:
    """Largest magnitude of ``[…, T]``, without a copy; nothing at all has 0."""
    if not samples.numel():
        return 0.0
    # Row by row, for rows that lie apart would be copied together.
    bounds = [torch.stack(torch.aminmax(row)) for row in samples.reshape(-1, samples.shape[-1])]
    return float(torch.stack(bounds).abs().max())


def measure_gain(samples: Tensor, sample_rate: int) -> float | None:
    """Find the factor that brings a mono track ``[T]`` to `TARGET_LUFS`; None means silence.

    The loudness is that of what the networks hear (mono, their rate), not of the stereo programme.
    """
    if peak_of(samples) < SILENCE_PEAK:
        return None
    loudness = float(integrated_loudness(samples[None, None], sample_rate))
    if loudness <= SILENCE_LUFS:
        return None
    return float(10 ** ((TARGET_LUFS - loudness) / 20))


def sounding(samples: Tensor, step: int) -> Tensor:
    """Leave out the silence before and behind a track ``[T]``; one that is all silence stays.

    Args:
        samples: The track, at its own level.
        step: Samples that are left out at a time.
    """
    first, stop = 0, len(samples)
    while first < stop and peak_of(samples[first : first + step]) < SILENCE_PEAK:
        first += step
    if first >= stop:
        return samples
    while peak_of(samples[max(first, stop - step) : stop]) < SILENCE_PEAK:
        stop -= step
    return samples[first:stop]


def audible(windows: Tensor, gain: float = 1.0) -> Tensor:
    """Leave out windows of a track that are silent but for a sliver, ``[W, T]`` to ``[≤ W, T]``.

    The networks would judge them as music. A track of slivers keeps those, and a silent one all.

    Args:
        windows: Of the track, brought to its level.
        gain: What brought them there.
    """
    length = max(1, windows.shape[-1] // _PARTS)
    parts = windows.unfold(-1, length, length)
    peaks = torch.maximum(parts.amax(dim=-1), -parts.amin(dim=-1))
    n_heard = (peaks >= SILENCE_PEAK * gain).sum(dim=-1)
    heard = n_heard >= n_heard.amax().clamp_max(_LEAST_PARTS)
    return windows if bool(heard.all()) else windows[heard]
