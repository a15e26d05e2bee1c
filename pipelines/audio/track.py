"""A track in the place where it is analysed: the host's memory, or copied once to a device.

All that a step reads of a track is computed from these samples, in place. The host resamples with
soxr, a device with a filter of the same shape, by FFT.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.dlpack import from_dlpack

from pipelines.audio.gain import hush, measure_gain
from pipelines.audio.resample import mono_at
from pipelines.audio.waveform import Waveform

# soxr's HQ recipe keeps 91 % of the band and is 120 dB down at its edge. A sinc under a Kaiser
# window with these differs from it by less than 4e-4 of the level of music.
_CROSSINGS, _ROLLOFF, _BETA = 96, 0.9565, 13.0
_BLOCK = 1 << 20
"""Samples transformed at a time, up to twice as many: so that an hour takes no more memory than a
minute, and a song takes few kernels."""


@dataclass(frozen=True, slots=True)
class Track:
    """The samples of a track, read-only.

    Attributes:
        samples: ``[C, T]``, C = 1 or 2, on the device that analyses it; float32, or float16 in the
            host's memory if the track is long.
        sample_rate: Hz.
    """

    samples: Tensor
    sample_rate: int
    _levelled: dict[int, tuple[Tensor, float] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, waveform: Waveform) -> "Track":
        """Return a decoded track in the host's memory, without a copy."""
        # Shared memory is read-only, which only DLPack accepts without a warning.
        return cls(from_dlpack(waveform.samples), waveform.sample_rate)

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.samples.shape[1] / self.sample_rate

    def mono_at(self, target_rate: int, n_behind: int = 0) -> Tensor:
        """Mix down, convert the sample rate and silence inaudible parts, see `hush`.

        Args:
            target_rate: Hz.
            n_behind: Number of zeros to append.

        Returns:
            ``[T' + n_behind]``, owned by the caller, with T' = T · target / sample rate within a
            sample; float32, or float16 if the track is.
        """
        if self.samples.device.type == "cpu":
            waveform = Waveform(self.samples.numpy(), self.sample_rate)
            mono = torch.from_numpy(mono_at(waveform, target_rate, n_behind))
        else:
            mono = resampled(self.samples.mean(dim=0), self.sample_rate, target_rate)
            mono = functional.pad(mono, (0, n_behind)) if n_behind else mono
        hush(mono[: len(mono) - n_behind], target_rate)
        return mono

    def levelled_at(self, target_rate: int) -> tuple[Tensor, float] | None:
        """Convert as `mono_at` and bring to `pipelines.audio.gain.TARGET_LUFS`; cached.

        Returns:
            ``[T']``, read-only, and the gain; None means silence.
        """
        if target_rate not in self._levelled:
            samples = self.mono_at(target_rate)
            gain = measure_gain(samples, target_rate)
            self._levelled[target_rate] = None if gain is None else (samples.mul_(gain), gain)
        return self._levelled[target_rate]


def resampled(samples: Tensor, sample_rate: int, target_rate: int) -> Tensor:
    """Convert the sample rate on the samples' device, by overlap-save.

    It does not use torchaudio's convolution with the same kernel, which a GPU would run in TF32
    unless a setting for all threads forbids it.

    Args:
        samples: float32 ``[…, T]``.
        sample_rate: Hz of ``samples``.
        target_rate: Hz wanted; equal rates return ``samples`` itself.

    Returns:
        float32 ``[…, ⌈T · target / sample rate⌉]``; silence stays silence.
    """
    if sample_rate == target_rate:
        return samples
    divisor = math.gcd(sample_rate, target_rate)
    down, up = sample_rate // divisor, target_rate // divisor
    margin = -(-_reach(down, up) // down)
    n_units = max(4 * margin, 1 << (_BLOCK // down).bit_length())  # a length that transforms fast
    response = _response(down, up, n_units, samples.device)
    n, kept = samples.shape[-1], n_units - 2 * margin
    ahead = functional.pad(samples, (margin * down, margin * down))
    blocks = []
    for start in range(0, n, kept * down):
        spectrum = torch.fft.rfft(ahead[..., start : start + n_units * down], n_units * down)
        block = torch.fft.irfft((spectrum * response)[..., : n_units * up // 2 + 1], n_units * up)
        blocks.append(block[..., margin * up : (n_units - margin) * up])
    return torch.cat(blocks, dim=-1)[..., : -(-n * up // down)]


def _reach(down: int, up: int) -> int:
    """Samples that the filter spans to either side."""
    return math.ceil(_CROSSINGS * down / (min(down, up) * _ROLLOFF))


@lru_cache(maxsize=16)
def _response(down: int, up: int, n_units: int, device: torch.device) -> Tensor:
    """Spectrum of the filter over a block, real, ``[n_units · down / 2 + 1]``."""
    reach, n_taps = _reach(down, up), 2 * _reach(down, up) + 1
    # Made on the device: a track whose crops are tuned has its own filter.
    t = torch.arange(-reach, reach + 1, dtype=torch.float64, device=device)
    window = torch.kaiser_window(
        n_taps, periodic=False, beta=_BETA, dtype=torch.float64, device=device
    )
    cutoff = min(1.0, up / down) * _ROLLOFF
    taps = cutoff * torch.sinc(cutoff * t) * window * (up / down)
    around_zero = functional.pad(taps, (0, n_units * down - n_taps)).roll(-reach)
    response: Tensor = torch.fft.rfft(around_zero).real.float()
    return response
