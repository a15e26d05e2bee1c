"""The one loudness to which tracks are brought for the networks, and what counts as silence."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.loudness import SILENCE_LUFS, integrated_loudness

TARGET_LUFS = -14.0
"""Level to which every track is brought for the networks: Spotify's playback level.

Log-mel networks react to the level: 12 dB move VibeNet's energy by a quarter, and musicnn's
embedding of one and the same track to a cosine of .69 (15 recordings of the evaluation set, mean;
.23 at worst). So one level is fixed for all of them, and a track's master does not matter. Why this
one: over 27 clips the mean shift against a clip's own level is +.06 in VibeNet's energy and -.01 in
acousticness at -14 LUFS, +.13 and -.03 at -11, -.10 and +.04 at -23; energy spreads as far as at
the clips' own levels. Bringing the peak to 0 dBFS shifts as little, but one click or a lossy codec
moves the peak.
"""

SILENCE_PEAK = 1e-4
"""-80 dBFS: audio that stays below it has no content."""

_PIECES_A_SECOND, _STEP_PIECES, _STRETCH_STEPS = 200, 20, 30
_FAR_BELOW_DB, _NOISE_BELOW_DB = -50.0, -35.0
_STEADY_DB = 1.4
"""Standard deviation over a stretch of the level of a step's median piece, which crackle between
the pieces leaves alone. Made noise has .3 at most, recorded rain .2 to 1.0, a record's groove .8 to
1.3. In 2.9 hours of real music, orchestras among it, two passages are as steady and so low."""
_LOUD = 0.95
"""Share of the steps that are not louder than the track's level."""
_BLOCK = 1 << 18
"""Samples measured at once."""

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


def hush(samples: Tensor, sample_rate: int) -> None:
    """Silence what nobody hears beside the music of a track, in place.

    That is 3 s and more that stay 50 dB below the track's level, or 35 dB if they are as steady as
    noise: a tape before the music begins, a groove after the last note. Spectral peaks,
    chords and windows are heard whatever their level, so that these would count as music.

    Args:
        samples: A track ``[T]``, float32 or float16. One of less than 3 s stays as it is.
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
    # Of differences, since rumble has less than a period in a piece.
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
    """Steps ``[n, pieces, piece]`` in float32 and without an offset, which is no sound."""
    values = steps.float()
    return values - values.mean(dim=(1, 2), keepdim=True)


def _decibels(norms: list[Tensor]) -> Tensor:
    return 20.0 * torch.log10(torch.cat(norms).clamp_min(1e-9))


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
