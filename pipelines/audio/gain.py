"""The loudness to which all tracks are brought for the networks, and what counts as silence."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.loudness import SILENCE_LUFS, integrated_loudness

TARGET_LUFS = -14.0
"""Level to which every track is brought for the networks: Spotify's playback level.

Log-mel networks react to the level: 12 dB change VibeNet's energy by a quarter, and musicnn's
embedding of the same track to a cosine of .69 (mean of 15 recordings of the evaluation set; .23 at
worst). So one level is fixed for all networks, and a track's mastering does not matter. Why this
level: over 27 clips, the mean shift from a clip's own level is +.06 in VibeNet's energy and -.01 in
acousticness at -14 LUFS, +.13 and -.03 at -11, -.10 and +.04 at -23; energy spreads as far as at
the clips' own levels. Bringing the peak to 0 dBFS shifts as little, but one click or a lossy codec
moves the peak.
"""

SILENCE_PEAK = 1e-4
"""-80 dBFS: audio that stays below it has no content."""

_PIECES_A_SECOND, _STEP_PIECES, _STRETCH_STEPS = 200, 20, 30
_FAR_BELOW_DB, _NOISE_BELOW_DB = -50.0, -35.0
_STEADY_DB = 1.4
"""Standard deviation, over a stretch, of the level of each step's median piece, which crackle does
not affect. Synthetic noise has at most .3, recorded rain .2 to 1.0, a record's groove .8 to 1.3. In
2.9 hours of real music, including orchestras, two passages are as steady and as quiet."""
_LOUD = 0.95
"""Quantile of the steps' levels that counts as the track's level."""
_BLOCK = 1 << 18
"""Samples measured at once."""

_PARTS, _LEAST_PARTS = 20, 2
"""Parts of a window, and how many must contain sound: at a track's end, a sample or two may reach
into the next window."""


def peak_of(samples: Tensor) -> float:
    """Largest magnitude of ``[…, T]``, without a copy; 0 if there are no samples."""
    if not samples.numel():
        return 0.0
    # Row by row: rows that are not contiguous would be copied together.
    bounds = [torch.stack(torch.aminmax(row)) for row in samples.reshape(-1, samples.shape[-1])]
    return float(torch.stack(bounds).abs().max())


def measure_gain(samples: Tensor, sample_rate: int) -> float | None:
    """Find the factor that brings a mono track ``[T]`` to `TARGET_LUFS`; None means silence.

    The loudness is that of the networks' input (mono, their rate), not of the stereo programme.
    """
    if peak_of(samples) < SILENCE_PEAK:
        return None
    loudness = float(integrated_loudness(samples[None, None], sample_rate))
    if loudness <= SILENCE_LUFS:
        return None
    return float(10 ** ((TARGET_LUFS - loudness) / 20))


def sounding(samples: Tensor, step: int) -> Tensor:
    """Trim the silence at both ends of a track ``[T]``; an all-silent track is unchanged.

    Args:
        samples: The track, at its own level.
        step: Samples trimmed at a time.
    """
    first, stop = 0, len(samples)
    while first < stop and peak_of(samples[first : first + step]) < SILENCE_PEAK:
        first += step
    if first >= stop:
        return samples
    while peak_of(samples[max(first, stop - step) : stop]) < SILENCE_PEAK:
        stop -= step
    return samples[first:stop]


def hush(samples: Tensor, sample_rate: int) -> None:
    """Silence the parts of a track that are inaudible next to its music, in place.

    These are 3 s or more that stay 50 dB below the track's level, or 35 dB if they are as steady as
    noise: tape hiss before the music begins, a record's groove after the last note. Spectral peaks,
    chords and windows are analysed whatever their level, so these parts would count as music.

    Args:
        samples: A track ``[T]``, float32 or float16. One shorter than 3 s is unchanged.
        sample_rate: Hz.
    """
    piece = sample_rate // _PIECES_A_SECOND
    step = _STEP_PIECES * piece
    n = len(samples) // step
    if n < _STRETCH_STEPS:
        return
    steps = samples[: n * step].view(n, _STEP_PIECES, piece)
    blocks = torch.split(steps, max(1, _BLOCK // step))
    level = _decibels([_centred(block).norm(dim=(1, 2)) for block in blocks])
    loudest = (level - level.quantile(_LOUD)).unfold(0, _STRETCH_STEPS, 1).amax(dim=1)
    if float(loudest.min()) >= _NOISE_BELOW_DB:
        return
    # Levels of differences, since rumble has less than a period in a piece.
    pieces = (_centred(block).diff(dim=2).norm(dim=2) for block in blocks)
    floor = _decibels([norms.median(dim=1).values for norms in pieces])
    is_steady = floor.unfold(0, _STRETCH_STEPS, 1).std(dim=1) < _STEADY_DB
    is_unheard = (loudest < _FAR_BELOW_DB) | (loudest < _NOISE_BELOW_DB) & is_steady
    if not bool(is_unheard.any()):
        return
    around = pad(is_unheard.float(), (_STRETCH_STEPS - 1, _STRETCH_STEPS - 1))
    covered = around.unfold(0, _STRETCH_STEPS, 1).amax(dim=1) > 0.0
    steps[covered] = 0.0
    if bool(covered[-1]):
        samples[n * step :] = 0.0


def _centred(steps: Tensor) -> Tensor:
    """Return steps ``[n, pieces, piece]`` as float32 without their DC offset."""
    values = steps.float()
    return values - values.mean(dim=(1, 2), keepdim=True)


def _decibels(norms: list[Tensor]) -> Tensor:
    return 20.0 * torch.log10(torch.cat(norms).clamp_min(1e-9))


def audible(windows: Tensor, gain: float = 1.0) -> Tensor:
    """Leave out a track's windows with no more than a sliver of sound, ``[W, T]`` to ``[≤ W, T]``.

    The networks would judge them as music. If there are only slivers, these are kept; a silent
    track keeps all windows.

    Args:
        windows: The track's windows, scaled to its level.
        gain: The factor that scaled them.
    """
    length = max(1, windows.shape[-1] // _PARTS)
    parts = windows.unfold(-1, length, length)
    peaks = torch.maximum(parts.amax(dim=-1), -parts.amin(dim=-1))
    n_heard = (peaks >= SILENCE_PEAK * gain).sum(dim=-1)
    heard = n_heard >= n_heard.amax().clamp_max(_LEAST_PARTS)
    return windows if bool(heard.all()) else windows[heard]
