"""From windows of samples to the features that a network was trained on, batched, on the device.

Every front-end is a module without learnt weights whose constants are buffers, so that it moves
with its network. None of them pads: a window's frames depend on nothing outside the window, and the
frames of a track's windows are the frames of the track.
"""

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

KALDI_LOG_FLOOR = 1.1920928955078125e-07
"""Smallest mel energy before the logarithm: float32 epsilon, as in Kaldi."""
_PREEMPHASIS = 0.97  # Kaldi's default.


_BANDS_TOGETHER = 20
_BLOCK_FRAMES = 128
"""Frames transformed at a time: this many fit into a processor's cache."""
_BLOCK_FRAMES_GPU = 2048


class BandSums(nn.Module):
    """Spectra of frames, summed over bands.

    A CPU sums a few bands at a time, only over their own bins.

    Args:
        weights: float32 ``[F, D]``, F ≤ ``n_fft`` // 2 + 1: weight of each bin in each band.
        window: float32 ``[L]``, L ≤ ``n_fft``.
        n_fft: Length of the transform; frames are zero-padded to it.
        power: 2 sums powers, 1 magnitudes.
    """

    weights: Tensor
    window: Tensor

    def __init__(self, weights: Tensor, window: Tensor, n_fft: int, power: Literal[1, 2]) -> None:
        super().__init__()
        self._n_fft, self._power = n_fft, power
        self.register_buffer("weights", weights.contiguous(), persistent=False)
        self.register_buffer("window", window, persistent=False)
        self._groups = []
        n_groups = max(1, weights.shape[1] // _BANDS_TOGETHER)
        size = -(-weights.shape[1] // n_groups)
        for first in range(0, weights.shape[1], size):
            bands = slice(first, first + size)
            bins = weights[:, bands].any(dim=1).nonzero()
            self._groups.append((slice(int(bins.min()), int(bins.max()) + 1), bands))

    def forward(self, frames: Tensor) -> Tensor:
        """Map frames ``[B, N, L]`` to ``[B, N, D]``."""
        return torch.cat([self._of_block(block) for block in blocks_of(frames)], dim=1)

    def _of_block(self, frames: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(frames * self.window, self._n_fft)[..., : len(self.weights)]
        if spectrum.device.type != "cpu":
            powers = spectrum.real.square().add_(spectrum.imag.square())
            whole: Tensor = (powers.sqrt_() if self._power == 1 else powers) @ self.weights
            return whole
        strengths = magnitudes(spectrum)
        if self._power == 2:
            strengths.square_()
        sums = [strengths[..., bins] @ self.weights[bins, bands] for bins, bands in self._groups]
        return torch.cat(sums, dim=-1)


def blocks_of(frames: Tensor) -> tuple[Tensor, ...]:
    """Split frames ``[B, N, L]`` into blocks to transform one at a time."""
    size = _BLOCK_FRAMES if frames.device.type == "cpu" else _BLOCK_FRAMES_GPU
    return torch.split(frames, size, dim=1)


def magnitudes(spectrum: Tensor) -> Tensor:
    """Return the magnitudes of complex64 ``[…]``, faster than torch's `abs`."""
    if spectrum.device.type == "cpu":
        return torch.from_numpy(np.abs(spectrum.numpy()))
    return spectrum.real.square().add_(spectrum.imag.square()).sqrt_()


class PowerMel(nn.Module):
    """Mel spectrogram of power, as librosa computes it with ``center=False``.

    Periodic Hann window; by default the Slaney mel scale with bands of unit area.

    Args:
        sample_rate: Hz.
        n_fft: Length of the transform; frames shorter than it are zero-padded.
        hop_length: Samples between frames.
        n_mels: Number of bands.
        frame_length: Samples in a frame; 0 means ``n_fft``.
        f_min: Hz, lower edge of the first band.
        f_max: Hz, upper edge of the last band; 0 means the Nyquist frequency.
        scale: ``slaney`` (bands of unit area) or ``htk`` (bands of unit height).

    References:
        librosa.feature.melspectrogram, librosa.filters.mel.
    """

    def __init__(
        self,
        sample_rate: int,
        n_fft: int,
        hop_length: int,
        n_mels: int,
        frame_length: int = 0,
        f_min: float = 0.0,
        f_max: float = 0.0,
        scale: Literal["slaney", "htk"] = "slaney",
    ) -> None:
        super().__init__()
        self.hop_length = hop_length
        self.frame_length = frame_length or n_fft
        build = {"slaney": slaney_bands, "htk": htk_bands}[scale]
        bands = torch.from_numpy(build(sample_rate, n_fft, n_mels, f_min, f_max))
        self.bands = BandSums(bands.T, torch.hann_window(self.frame_length), n_fft, power=2)

    def forward(self, windows: Tensor) -> Tensor:
        """Compute the mel power.

        Args:
            windows: float32 ``[B, T]``, full scale ±1, T ≥ ``frame_length``.

        Returns:
            float32 ``[B, n_mels, N]``, N = 1 + (T - frame_length) // hop_length; silence gives 0.
        """
        mel: Tensor = self.bands(windows.unfold(-1, self.frame_length, self.hop_length))
        return mel.transpose(1, 2)


class MusicnnMel(nn.Module):
    """musicnn's input: 96 log-compressed mel bands at 62.5 frames per second.

    The compression is in float32; in the published recipe's float16, loud input overflows.

    References:
        Pons et al., End-to-end learning for music audio tagging at scale (ISMIR 2018); musicnn
        0.1.0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mel = PowerMel(16_000, n_fft=512, hop_length=256, n_mels=96)

    def forward(self, windows: Tensor) -> Tensor:
        """Map ``[B, T]`` at 16 kHz to ``log10(10000 m + 1)``, ``[B, 96, N]``; silence is 0."""
        log_mel: Tensor = torch.log10(self.mel(windows) * 10_000 + 1)
        return log_mel


class VibenetMel(nn.Module):
    """VibeNet's input: 128 mel bands in decibels, floored 80 dB below the window's maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.mel = PowerMel(16_000, n_fft=1024, hop_length=320, n_mels=128, frame_length=640)

    def forward(self, windows: Tensor) -> Tensor:
        """Map ``[B, T]`` at 16 kHz to decibels ``[B, 128, N]``; silence is -100 throughout."""
        decibels: Tensor = 10 * torch.log10(self.mel(windows).clamp_min(1e-10))
        floor = decibels.amax(dim=(1, 2), keepdim=True) - 80
        return torch.maximum(decibels, floor)


class KaldiFbank(nn.Module):
    """Kaldi's log-mel filter bank, batched: 25 ms frames every 10 ms, without dither.

    The mean is removed from every frame, then pre-emphasis and a symmetric Hann window; the bands
    are triangles on the HTK mel scale from 20 Hz to the Nyquist frequency.

    References:
        Kaldi ``feat/feature-fbank.cc``; torchaudio.compliance.kaldi.fbank with ``dither=0``,
        ``window_type="hanning"``, ``htk_compat=True``, ``use_energy=False``.
    """

    window: Tensor
    bands: Tensor

    def __init__(self, sample_rate: int, n_mels: int) -> None:
        super().__init__()
        self.frame_length = sample_rate * 25 // 1000
        self.hop_length = sample_rate // 100
        self.n_fft = 1 << (self.frame_length - 1).bit_length()
        window = torch.hann_window(self.frame_length, periodic=False)
        self.register_buffer("window", window, persistent=False)
        bands = torch.from_numpy(kaldi_bands(sample_rate, self.n_fft, n_mels))
        self.register_buffer("bands", bands, persistent=False)

    def forward(self, windows: Tensor) -> Tensor:
        """Compute the filter bank.

        Args:
            windows: float32 ``[B, T]``, full scale ±1, T ≥ 25 ms.

        Returns:
            Natural logarithm of mel power, float32 ``[B, N, n_mels]`` (frames first, as in Kaldi),
            N = 1 + (T - frame) // hop; silence gives log(`KALDI_LOG_FLOOR`) = -15.94.
        """
        frames = windows.unfold(-1, self.frame_length, self.hop_length)
        frames = frames - frames.mean(dim=-1, keepdim=True)
        previous = torch.cat([frames[..., :1], frames[..., :-1]], dim=-1)
        frames = (frames - _PREEMPHASIS * previous) * self.window
        spectrum = torch.fft.rfft(frames, n=self.n_fft)
        power = spectrum.real.square() + spectrum.imag.square()
        log_mel: Tensor = (power @ self.bands.T).clamp_min(KALDI_LOG_FLOOR).log()
        return log_mel


def slaney_bands(
    sample_rate: int, n_fft: int, n_mels: int, f_min: float = 0.0, f_max: float = 0.0
) -> NDArray[np.float32]:
    """Build triangular mel bands of unit area on the Slaney scale.

    Args:
        sample_rate: Hz.
        n_fft: Length of the transform.
        n_mels: Number of bands.
        f_min: Hz, lower edge of the first band.
        f_max: Hz, upper edge of the last band; 0 means the Nyquist frequency.

    Returns:
        float32 ``[n_mels, n_fft // 2 + 1]``, to be multiplied with a power spectrum.

    References:
        Slaney, Auditory Toolbox (1998): linear below 1 kHz, logarithmic above; librosa.filters.mel.
    """
    # 15 mels to 1 kHz at 200/3 Hz each, then 27 mels for a factor of 6.4.
    log_step = math.log(6.4) / 27
    edges_mel = np.linspace(_slaney_mel(f_min), _slaney_mel(f_max or sample_rate / 2), n_mels + 2)
    linear = edges_mel * (200 / 3)
    edges = np.where(edges_mel < 15, linear, 1000 * np.exp(log_step * (edges_mel - 15)))
    bands = _triangles(edges, np.linspace(0, sample_rate / 2, n_fft // 2 + 1))
    unit_area = bands * (2 / (edges[2:] - edges[:-2]))[:, None]
    return unit_area.astype(np.float32)


def _slaney_mel(frequency: float) -> float:
    if frequency < 1000:
        return frequency * 3 / 200
    return 15 + math.log(frequency / 1000) * 27 / math.log(6.4)


def htk_bands(
    sample_rate: int, n_fft: int, n_mels: int, f_min: float = 0.0, f_max: float = 0.0
) -> NDArray[np.float32]:
    """Build triangular mel bands of unit height on the HTK scale, with triangles linear in hertz.

    Arguments and result as in `slaney_bands`.

    References:
        Young et al., The HTK Book, 5.4; torchaudio.functional.melscale_fbanks with its defaults.
    """
    low, high = _htk_mel(np.array([f_min, f_max or sample_rate / 2]))
    edges = 700 * (10 ** (np.linspace(low, high, n_mels + 2) / 2595) - 1)
    frequencies = np.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    return _triangles(edges, frequencies).astype(np.float32)


def _htk_mel(frequency: NDArray[np.float64]) -> NDArray[np.float64]:
    mel: NDArray[np.float64] = 2595 * np.log10(1 + frequency / 700)
    return mel


def kaldi_bands(
    sample_rate: int, n_fft: int, n_mels: int, f_min: float = 20.0, f_max: float = 0.0
) -> NDArray[np.float32]:
    """Build triangular mel bands of unit height, with triangles linear in mels, as in Kaldi.

    Arguments as in `slaney_bands`.

    Returns:
        float32 ``[n_mels, n_fft // 2 + 1]``; the Nyquist bin has no weight.
    """
    frequencies = np.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    mels = _htk_mel(frequencies)
    low, high = _htk_mel(np.array([f_min, f_max or sample_rate / 2]))
    bands = _triangles(np.linspace(low, high, n_mels + 2), mels)
    bands[:, -1] = 0
    return bands.astype(np.float32)


def _triangles(edges: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate triangles of height 1 over neighbouring ``edges [K + 2]`` at ``points [F]``."""
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (points - left) / (centre - left)
    falling = (right - points) / (right - centre)
    return np.maximum(0, np.minimum(rising, falling))
