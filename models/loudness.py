"""Programme loudness, loudness range and true peak.

Everything is based on the mean squares of the K-weighted signal in steps of 100 ms, which can be
computed in windows, on any device, and joined without a seam. Gates and percentiles work on that
short series.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

SILENCE_LUFS = -70.0
"""The absolute gate (BS.1770-4, Annex 1); also the loudness of silence."""
SILENCE_DBTP = -120.0
"""The true peak of digital silence."""
STEP_S = 0.1
"""Gating blocks are 400 ms with 75 % overlap, so 100 ms apart (BS.1770-4, Annex 1)."""
RESPONSE_S = 0.07
"""K-weighting's response is below -150 dB after this time (double pole at 38 Hz)."""

_OFFSET = -0.691
_CHANNEL_GAINS = (1.0, 1.0, 1.0, 1.41, 1.41)  # L, R, C, Ls, Rs: BS.1770-4 table 3.
_BLOCK_SAMPLES = 1 << 18
"""Samples filtered at a time: this many fit into a processor's cache; more cost page faults."""
_BLOCK_SAMPLES_GPU = 1 << 24
"""More on a GPU, whose launches take longer than a processor's block."""
_GATING_STEPS = 4
_SHORT_TERM_STEPS = 30

# True peak: windowed-sinc interpolation, as BS.1770-4 Annex 2 allows (it asks for 4 times or more).
_OVERSAMPLING = 8
_HALF_TAPS = 16
_CELL = 64
_LOUDEST_CELLS = 64
_HALFWAY = (0.610, -0.143, 0.039, -0.006)
"""Weights of the samples one half, three halves … away on either side: a shorter interpolation."""


class ShapeError(ValueError):
    """The waveform is not ``[B, C, T]`` with at most five channels."""


def step_length(sample_rate: int) -> int:
    """Samples in 100 ms."""
    return round(STEP_S * sample_rate)


def _biquad(
    kind: str, frequency_hz: float, q: float, gain_db: float, sample_rate: int
) -> tuple[list[float], list[float]]:
    """Analogue prototype of one K-weighting stage, bilinear-transformed to ``sample_rate``."""
    k = math.tan(math.pi * frequency_hz / sample_rate)
    norm = 1.0 + k / q + k * k
    a = [1.0, 2.0 * (k * k - 1.0) / norm, (1.0 - k / q + k * k) / norm]
    if kind == "high_pass":
        # The standard's second stage has the numerator 1, -2, 1 unscaled.
        return [1.0, -2.0, 1.0], a
    high = 10.0 ** (gain_db / 20.0)
    band = high**0.4996667741545416
    b = [
        (high + band * k / q + k * k) / norm,
        2.0 * (k * k - high) / norm,
        (high - band * k / q + k * k) / norm,
    ]
    return b, a


@lru_cache(maxsize=8)
def _k_weighting_taps(sample_rate: int) -> Tensor:
    """Impulse response of both K-weighting stages, float64 ``[⌈0.07 · sample_rate⌉]``.

    References:
        BS.1770-4 tables 1 and 2 give 48 kHz coefficients; these prototypes reproduce them there and
        carry them to other rates.
    """
    n_fft = 1 << math.ceil(math.log2(8 * RESPONSE_S * sample_rate))
    z = torch.exp(-2j * math.pi * torch.arange(n_fft // 2 + 1, dtype=torch.float64) / n_fft)
    response = torch.ones_like(z)
    for b, a in (
        _biquad("shelf", 1681.974450955533, 0.7071752369554196, 3.999843853973347, sample_rate),
        _biquad("high_pass", 38.13547087602444, 0.5003270373238773, 0.0, sample_rate),
    ):
        response = response * (b[0] + b[1] * z + b[2] * z * z) / (a[0] + a[1] * z + a[2] * z * z)
    taps: Tensor = torch.fft.irfft(response, n_fft)[: math.ceil(RESPONSE_S * sample_rate)]
    return taps


@lru_cache(maxsize=8)
def _k_weighting_response(sample_rate: int, n_fft: int, device: torch.device) -> Tensor:
    """Spectrum of `_k_weighting_taps`, complex64 ``[n_fft // 2 + 1]``."""
    spectrum: Tensor = torch.fft.rfft(_k_weighting_taps(sample_rate), n_fft)
    return spectrum.to(device, torch.complex64)


def _between(waveform: Tensor, start: int, stop: int) -> Tensor:
    """Return samples ``start`` to ``stop`` of ``[…, T]`` as float32, zeros outside."""
    outside = max(0, -start), max(0, stop - waveform.shape[-1])
    part = waveform[..., max(0, start) : stop].float()
    return torch.nn.functional.pad(part, outside) if any(outside) else part


def _check(waveform: Tensor) -> None:
    if waveform.ndim != 3 or waveform.shape[1] > len(_CHANNEL_GAINS):
        raise ShapeError(f"expected [B, C ≤ 5, T], got {tuple(waveform.shape)}")


def step_energies(waveform: Tensor, sample_rate: int) -> Tensor:
    """Mean square of the K-weighted signal in steps of 100 ms, channels summed with their gains.

    The filter starts from rest: a window cut out of a track needs `RESPONSE_S` of lead-in for its
    steps to equal the track's.

    Args:
        waveform: float32 or float16 ``[B, C, T]``, full scale ±1, C ≤ 5.
        sample_rate: Hz.

    Returns:
        float32 ``[B, N]``, N = ⌊T / step⌋: only whole steps count; silence gives zeros.

    Raises:
        ShapeError: Not three-dimensional, or more than five channels.
    """
    _check(waveform)
    b, c, t = waveform.shape
    step = step_length(sample_rate)
    n_steps = t // step
    taps = _k_weighting_taps(sample_rate)
    # Overlap-save: every FFT frame yields a whole number of steps.
    n_fft = 1 << math.ceil(math.log2(len(taps) + 3 * step))
    per_frame = (n_fft - len(taps) + 1) // step
    n_frames = max(1, math.ceil(n_steps / per_frame))
    lead, hop = n_fft - per_frame * step, per_frame * step
    response = _k_weighting_response(sample_rate, n_fft, waveform.device)
    n_samples = _BLOCK_SAMPLES if waveform.device.type == "cpu" else _BLOCK_SAMPLES_GPU
    at_once = max(1, n_samples // (b * c * n_fft))
    energies = []
    for first in range(0, n_frames, at_once):
        start, stop = first * hop - lead, min(n_frames, first + at_once) * hop
        part = _between(waveform[..., : n_steps * step], start, stop)
        spectra = torch.fft.rfft(part.unfold(-1, n_fft, hop)).mul_(response)
        weighted = torch.fft.irfft(spectra, n_fft)[..., lead:].unflatten(-1, (per_frame, step))
        norms = torch.linalg.vector_norm(weighted, dim=-1)  # in one pass and without a copy
        energies.append(norms.flatten(2).square_().div_(step))
    of_channels = torch.cat(energies, dim=-1)[..., :n_steps].unbind(1)
    weighed = [gain * channel for gain, channel in zip(_CHANNEL_GAINS, of_channels, strict=False)]
    return torch.stack(weighed).sum(0)


def _lufs(energy: Tensor) -> Tensor:
    return _OFFSET + 10.0 * torch.log10(energy.clamp_min(1e-12))


def _blocks(energies: Tensor, n_steps: int) -> Tensor:
    """Mean energy of every run of ``n_steps`` steps; a shorter series is one block."""
    return energies.unfold(-1, min(n_steps, energies.shape[-1]), 1).mean(-1)


def _gated_mean(blocks: Tensor, gate: Tensor) -> Tensor:
    kept = gate.to(blocks.dtype)
    return (blocks * kept).sum(-1) / kept.sum(-1).clamp_min(1.0)


def gated_loudness(energies: Tensor) -> Tensor:
    """Integrated loudness from `step_energies`.

    Args:
        energies: float ``[B, N]``; N < 4 (under 400 ms) counts as one block; N = 0 is silence.

    Returns:
        LUFS, float32 ``[B]``; silence gives -70.0.

    References:
        ITU-R BS.1770-4, Annex 1, equations 3 to 7.
    """
    if energies.shape[-1] == 0:
        return torch.full(energies.shape[:-1], SILENCE_LUFS)
    blocks = _blocks(energies.double(), _GATING_STEPS)
    levels = _lufs(blocks)
    above = levels > SILENCE_LUFS
    relative = _lufs(_gated_mean(blocks, above)) - 10.0
    loudness = _lufs(_gated_mean(blocks, above & (levels > relative[..., None])))
    return torch.where(above.any(-1), loudness, SILENCE_LUFS).float()


def gated_range(energies: Tensor) -> Tensor:
    """Loudness range from `step_energies`.

    Args:
        energies: float ``[B, N]``; under 3 s there is one block and the range is 0.

    Returns:
        LU, float32 ``[B]``; silence gives 0.

    References:
        EBU Tech 3342: 3 s blocks, gates at -70 LUFS and 20 LU below, 10th to 95th percentile.
    """
    if energies.shape[-1] == 0:
        return torch.zeros(energies.shape[:-1])
    blocks = _blocks(energies.double(), _SHORT_TERM_STEPS)
    levels = _lufs(blocks)
    above = levels > SILENCE_LUFS
    relative = _lufs(_gated_mean(blocks, above)) - 20.0
    kept = torch.where(above & (levels > relative[..., None]), levels, torch.nan)
    quantiles = torch.nanquantile(
        kept, torch.tensor([0.10, 0.95], dtype=kept.dtype, device=kept.device), dim=-1
    )
    return torch.nan_to_num(quantiles[1] - quantiles[0]).float()


def integrated_loudness(waveform: Tensor, sample_rate: int) -> Tensor:
    """Measure gated programme loudness.

    Args:
        waveform: float32 ``[B, C, T]``, full scale ±1, C ≤ 5.
        sample_rate: Hz.

    Returns:
        LUFS, float32 ``[B]``; silence gives -70.0.

    Raises:
        ShapeError: Not three-dimensional, or more than five channels.

    References:
        ITU-R BS.1770-4, Annex 1.
    """
    return gated_loudness(step_energies(waveform, sample_rate))


@lru_cache(maxsize=4)
def _interpolator(device: torch.device) -> Tensor:
    """Matrix ``[cell + 2 · half, cell · 7]`` from samples to the values between them."""
    phases = torch.arange(1, _OVERSAMPLING, dtype=torch.float64) / _OVERSAMPLING
    where = torch.arange(_CELL, dtype=torch.float64)[:, None] + phases
    offset = (
        where.reshape(-1)
        + _HALF_TAPS
        - torch.arange(_CELL + 2 * _HALF_TAPS, dtype=torch.float64).unsqueeze(1)
    )
    window = torch.special.i0(
        6.0 * torch.sqrt((1.0 - (offset / _HALF_TAPS).square()).clamp_min(0.0))
    ) / torch.special.i0(torch.tensor(6.0, dtype=torch.float64))
    kernel: Tensor = torch.sinc(offset) * window * (offset.abs() <= _HALF_TAPS)
    return kernel.to(device, torch.float32)


def _loudest_in_cells(waveform: Tensor) -> Tensor:
    """Largest magnitude of each cell, on the samples and about half-way between them.

    Returns:
        float32 ``[B, C, ⌈T / 64⌉]``.
    """
    t, reach = waveform.shape[-1], len(_HALFWAY)
    n_samples = _BLOCK_SAMPLES if waveform.device.type == "cpu" else _BLOCK_SAMPLES_GPU
    at_once = max(1, n_samples // (waveform.shape[0] * waveform.shape[1] * _CELL)) * _CELL
    found = []
    for start in range(0, t, at_once):
        n = -(-min(at_once, t - start) // _CELL) * _CELL
        part = _between(waveform, start - reach + 1, start + n + reach)
        halfway = torch.zeros_like(part[..., :n])
        for i, weight in enumerate(_HALFWAY):
            halfway.add_(part[..., reach - 1 - i :][..., :n], alpha=weight)
            halfway.add_(part[..., reach + i :][..., :n], alpha=weight)
        for values in (part[..., reach - 1 :][..., :n], halfway):
            cells = values.reshape(*values.shape[:-1], -1, _CELL)
            # Highest and lowest instead of the largest magnitude, which would need a copy.
            found.append(torch.maximum(cells.amax(-1), -cells.amin(-1)))
    on, between = torch.cat(found[::2], dim=-1), torch.cat(found[1::2], dim=-1)
    return torch.maximum(on, between)


def peak(waveform: Tensor) -> Tensor:
    """Largest magnitude between and on the samples, linear.

    Only the 64 loudest cells of 64 samples in each channel are interpolated. They are chosen by the
    values about half-way between samples too: in limited or clipped music, thousands of cells have
    samples at the ceiling.

    Args:
        waveform: float32 or float16 ``[B, C, T]``, full scale ±1.

    Returns:
        float32 ``[B]``, 1 is full scale; silence and T = 0 give 0.

    Raises:
        ShapeError: Not three-dimensional, or more than five channels.
    """
    _check(waveform)
    b, _, t = waveform.shape
    if t == 0:
        return torch.zeros(b, device=waveform.device)
    loudest = _loudest_in_cells(waveform)
    picks = loudest.topk(min(_LOUDEST_CELLS, loudest.shape[-1]), dim=-1).indices
    around = torch.arange(-_HALF_TAPS, _CELL + _HALF_TAPS, device=waveform.device)
    at = picks[..., None] * _CELL + around
    near = waveform[..., None, :].expand(*at.shape[:-1], t).gather(-1, at.clamp(0, t - 1))
    near = near.float() * ((at >= 0) & (at < t))
    between = near @ _interpolator(waveform.device)
    return torch.maximum(near.abs().amax((1, 2, 3)), between.abs().amax((1, 2, 3)))


def to_dbtp(linear_peak: Tensor) -> Tensor:
    """Convert `peak` to dBTP; silence gives -120.

    References:
        ITU-R BS.1770-4, Annex 2.
    """
    return 20.0 * torch.log10(linear_peak.clamp_min(10.0 ** (SILENCE_DBTP / 20.0)))
