"""afa's own beat network: beat, downbeat and tempo evidence from a temporal convolutional network.

A frame of silence is the same to the network as a frame outside the track: its hidden states are
zero in every layer. So a track can be cut anywhere, and windows that overlap by the receptive field
yield the frames of the whole.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from models.frontends import BandSums

SAMPLE_RATE = 22_050
HOP_LENGTH = 441
FRAME_RATE = SAMPLE_RATE / HOP_LENGTH
"""Frames per second (50)."""
TEMPO_STRIDE = 50
"""Frames that one row of tempo evidence covers (a second)."""
TEMPI = 40.0 * 2.0 ** (np.arange(64) / 20)
"""BPM of the tempo head's classes: 40 to 355, 20 per octave (3.5 % apart)."""

_WIN_LENGTH = 1411
_HALF = _WIN_LENGTH // 2
_N_FFT = 2048
_BANDS_PER_OCTAVE = 12
_F_MIN_HZ, _N_EDGES = 27.5, 104
_LEVEL_FRAMES = 512
"""Maximum number of evenly spread frames from which a track's level is measured."""
_LEVEL_QUANTILE = 0.9
_LEVEL_REACH = 1e-3
"""Frames this far (60 dB) below a track's strongest do not count for its level."""
_COMPRESSION = 10.0
_SILENT = 1e-3
"""A frame with all features below this is silence: 74 dB under the track's level."""
_FAINT = 4e-3
"""No beat begins in a frame with all features below this (62 dB under the level, like dither)."""
_DYING_FRAMES = 5 * round(FRAME_RATE)
_KERNEL = 5
_BAND_KERNEL = 12
_BAND_REACH = 2
"""Frames on either side that two 3-tap convolutions over the bands depend on."""
_BLOCK_FRAMES = 500
"""Frames convolved over the bands at a time: this many fit into a processor's cache."""


def filter_bank() -> NDArray[np.float32]:
    """Triangular filters from 40 Hz to 10 kHz, 12 per octave, each summing to one: ``[1025, 83]``.

    If an octave has fewer bins than that, neighbouring filters coincide and count once.
    """
    edges = _F_MIN_HZ * 2.0 ** (np.arange(_N_EDGES) / _BANDS_PER_OCTAVE)
    corners = np.unique(np.round(edges * _N_FFT / SAMPLE_RATE).astype(np.int64))
    bank = np.zeros((_N_FFT // 2 + 1, len(corners) - 2))
    for i, (low, centre, high) in enumerate(
        zip(corners[:-2], corners[1:-1], corners[2:], strict=True)
    ):
        bins = np.arange(low, high + 1)
        rising = (bins - low) / (centre - low)
        falling = (high - bins) / (high - centre)
        bank[low : high + 1, i] = np.minimum(rising, falling)
    return np.asarray(bank / bank.sum(axis=0), dtype=np.float32)


N_BANDS = filter_bank().shape[1]


class BeatFeatures(nn.Module):
    """The network's input: a compressed band spectrogram at 50 frames per second.

    It does not depend on gain once a track has been divided by its `level`.
    """

    def __init__(self) -> None:
        super().__init__()
        bank = torch.from_numpy(filter_bank())
        bank = bank[: int(bank.any(dim=1).nonzero().max()) + 1]
        window = torch.hann_window(_WIN_LENGTH, periodic=False, dtype=torch.float64).float()
        # Zeros are cheaper after the window than after each frame.
        padded = functional.pad(window, (0, _N_FFT - _WIN_LENGTH))
        self._bands = BandSums(bank, padded, _N_FFT, power=1)
        self._mean = BandSums(bank.mean(dim=1, keepdim=True), window, _N_FFT, power=1)

    def forward(self, waveform: Tensor) -> Tensor:
        """Compute the features of centred frames; outside the waveform there is silence.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, divided by its `level`.

        Returns:
            float32 ``[B, ⌈T / 441⌉, 83]``, not negative; silence gives zeros.
        """
        return self.compress(self.bands(waveform))

    def bands(self, waveform: Tensor) -> Tensor:
        """Magnitude in every band, linear: ``[B, T]`` to ``[B, ⌈T / 441⌉, 83]``."""
        bands: Tensor = self._bands(self._frames(waveform))
        return bands

    def compress(self, bands: Tensor) -> Tensor:
        """Compress the bands of a track whose `level` is 1: ``log(1 + 10 x) / 2``."""
        return torch.log1p(_COMPRESSION * bands).mul_(0.5)

    def level(self, waveform: Tensor) -> Tensor:
        """Measure the level of a track's strong passages.

        Args:
            waveform: float32 or float16 ``[B, T]`` at 22,050 Hz.

        Returns:
            float32 ``[B]``: over the frames within 60 dB of the strongest, so that pauses between
            sounds change nothing, the 90th percentile of the mean over the bands; from at most 512
            frames; positive, 1e-6 for silence.
        """
        n_frames = -(-waveform.shape[-1] // HOP_LENGTH)
        frames = _frames_around(waveform, HOP_LENGTH * -(-n_frames // _LEVEL_FRAMES))
        means = self._mean(frames.float())[..., 0]
        heard = means >= _LEVEL_REACH * means.amax(dim=1, keepdim=True)
        level: Tensor = means.where(heard, torch.nan).nanquantile(_LEVEL_QUANTILE, dim=1) + 1e-6
        return level

    def _frames(self, waveform: Tensor) -> Tensor:
        """View ``[B, T]`` as frames whose first 1,411 samples are centred on the hops' starts."""
        n_frames = -(-waveform.shape[-1] // HOP_LENGTH)
        padded = functional.pad(waveform, (_HALF, _N_FFT))
        return padded.unfold(-1, _N_FFT, HOP_LENGTH)[:, :n_frames]


def _frames_around(waveform: Tensor, step: int) -> Tensor:
    """Copy the frames of ``[B, T]`` around every ``step`` samples, without copying the rest."""
    n = waveform.shape[-1]
    n_frames = -(-n // step)
    # Frames from ``first`` to before ``last`` need no silence outside the waveform.
    first, last = -(-_HALF // step), (n - _WIN_LENGTH + _HALF) // step + 1
    if first >= last:
        padded = functional.pad(waveform, (_HALF, _WIN_LENGTH))
        return padded.unfold(-1, _WIN_LENGTH, step)[:, :n_frames]
    before = functional.pad(
        waveform[:, : (first - 1) * step - _HALF + _WIN_LENGTH], (_HALF, 0)
    ).unfold(-1, _WIN_LENGTH, step)
    within = waveform[:, first * step - _HALF :].unfold(-1, _WIN_LENGTH, step)
    behind = functional.pad(waveform[:, last * step - _HALF :], (0, _WIN_LENGTH)).unfold(
        -1, _WIN_LENGTH, step
    )
    return torch.cat([before, within, behind[:, : n_frames - last]], dim=1)


def is_heard(features: Tensor) -> Tensor:
    """Return 1 for sound and 0 for silence, ``[B, N]``, from features ``[B, N, 83]``."""
    return (features.amax(dim=-1) > _SILENT).to(features.dtype)


def is_pause(features: Tensor) -> Tensor:
    """Return which frames are silence without beats, ``[B, N]``, from features ``[B, N, 83]``.

    Beats may continue for five seconds after the last sound, which often dies away before the end
    of the track.
    """
    heard = (features.amax(dim=-1) > _FAINT).to(features.dtype)
    followed = heard.flip(-1).cummax(dim=-1).values.flip(-1)
    lately = functional.max_pool1d(functional.pad(heard, (_DYING_FRAMES, 0)), _DYING_FRAMES + 1, 1)
    return (heard == 0) & ((followed == 1) | (lately == 0))


class BeatLogits(NamedTuple):
    """The network's output for N frames.

    Attributes:
        beat: Logits of a beat of any kind, ``[B, N]``.
        downbeat: Logits of a downbeat, ``[B, N]``.
        tempo: Logits over `TEMPI`, one row per second, ``[B, ⌈N / 50⌉, 64]``.
    """

    beat: Tensor
    downbeat: Tensor
    tempo: Tensor


class _Block(nn.Module):
    """Two parallel dilated convolutions, dilations d and 2 d, with a residual path."""

    def __init__(self, channels: int, dilation: int, dropout: float) -> None:
        super().__init__()
        near, far = dilation * (_KERNEL // 2), 2 * dilation * (_KERNEL // 2)
        self.near = nn.Conv1d(channels, channels, _KERNEL, padding=near, dilation=dilation)
        self.far = nn.Conv1d(channels, channels, _KERNEL, padding=far, dilation=2 * dilation)
        self.mix = nn.Conv1d(2 * channels, channels, 1)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map ``[B, C, 1, N]`` to the next block's input and this one's output, same shapes."""
        both = functional.elu(torch.cat([_convolved(x, self.near), _convolved(x, self.far)], dim=1))
        said = _convolved(self.dropout(both), self.mix)
        return _convolved(x, self.residual) + said, said


def _convolved(x: Tensor, layer: nn.Conv1d) -> Tensor:
    """Convolve ``[B, C, 1, N]`` over N; a 1-D convolution cannot have channels innermost."""
    padding, dilation = (0, int(layer.padding[0])), (1, layer.dilation[0])
    weight = layer.weight[:, :, None]
    return functional.conv2d(x, weight, layer.bias, padding=padding, dilation=dilation)


class BeatNetwork(nn.Module):
    """Convolutions over the bands, then dilated residual blocks over time.

    Args:
        channels: Width of the blocks.
        n_blocks: Dilations are 1, 2, …, 2^(n - 1) and twice that; the receptive field grows with
            the last: 8 blocks see 20 s to either side.
        dropout: Dropout probability in training.

    References:
        Böck & Davies, "Deconstruct, analyse, reconstruct: how to improve tempo, beat, and downbeat
        estimation", ISMIR 2020.
    """

    def __init__(self, channels: int = 32, n_blocks: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        pooled = (N_BANDS - 2) // 3
        pooled = (pooled - _BAND_KERNEL + 1) // 3
        self.bands1 = nn.Conv2d(1, 16, 3, padding=(1, 0))
        self.bands2 = nn.Conv2d(16, 32, (1, _BAND_KERNEL))
        self.bands3 = nn.Conv2d(32, channels, 3, padding=(1, 0))
        self.project = nn.Conv1d(channels * (pooled - 2), channels, 1)
        self.blocks = nn.ModuleList(_Block(channels, 2**i, dropout) for i in range(n_blocks))
        self.beats = nn.Conv1d(channels, 2, 1)
        self.tempo = nn.Linear(channels, len(TEMPI))
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "BeatNetwork":
        """Build a network with these weights, which determine its size.

        Raises:
            RuntimeError: Tensors are missing, extra or misshapen.
        """
        channels = len(tensors["project.bias"]) if "project.bias" in tensors else 32
        n_blocks = sum(name.endswith("near.bias") for name in tensors)
        network = cls(channels, n_blocks)
        network.load_state_dict(dict(tensors))
        # Channels last makes the convolutions over the bands twice as fast on a CPU.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network.eval()

    @property
    def receptive_frames(self) -> int:
        """Frames before and after a frame that it depends on."""
        # Two 3-tap convolutions over the bands, and in every block the farther kernel.
        return 2 + 2 * (_KERNEL // 2) * ((1 << len(self.blocks)) - 1)

    def forward(self, features: Tensor) -> BeatLogits:
        """Estimate beats, downbeats and tempo.

        Args:
            features: float32 ``[B, N, 83]``, see `BeatFeatures`.
        """
        heard = is_heard(features)[:, None]
        x = self._bands(features, heard)[:, :, None]
        if features.device.type == "cpu":  # channels innermost take two thirds of the time there
            x = x.contiguous(memory_format=torch.channels_last)
        total = torch.zeros_like(x)
        for block in self.blocks:
            x, said = block(x)
            x = x * heard[:, None]
            total = total + said
        beats = self.beats(functional.elu(x[:, :, 0]))
        a_second = functional.avg_pool1d(
            functional.elu(total[:, :, 0]), TEMPO_STRIDE, ceil_mode=True
        )
        return BeatLogits(beats[:, 0], beats[:, 1], self.tempo(a_second.transpose(1, 2)))

    def _bands(self, features: Tensor, heard: Tensor) -> Tensor:
        """Convolve over the bands: ``[B, N, 83]`` to ``[B, C, N]``."""
        n = features.shape[1]
        if features.device.type != "cpu" or self.training:
            return self._bands_of_block(features, heard)
        blocks = []
        for start in range(0, n, _BLOCK_FRAMES):
            stop = min(n, start + _BLOCK_FRAMES)
            low, high = max(0, start - _BAND_REACH), min(n, stop + _BAND_REACH)
            block = self._bands_of_block(features[:, low:high], heard[..., low:high])
            blocks.append(block[..., start - low : stop - low])
        return torch.cat(blocks, dim=-1)

    def _bands_of_block(self, features: Tensor, heard: Tensor) -> Tensor:
        # The exponential after the maximum gives the same result, on a third of the values.
        x = functional.elu(_largest_of_three(self.bands1(features[:, None])))
        x = functional.elu(_largest_of_three(self.bands2(self.dropout(x))))
        x = functional.elu(self.bands3(self.dropout(x) * heard[..., None]))
        x = self.dropout(x).permute(0, 1, 3, 2).flatten(1, 2)
        projected: Tensor = functional.elu(self.project(x)) * heard
        return projected


def _largest_of_three(x: Tensor) -> Tensor:
    """Pool ``[B, C, N, F]`` to ``[B, C, N, F // 3]``."""
    if x.device.type != "cpu" or torch.is_grad_enabled():
        return functional.max_pool2d(x, (1, 3))  # also records where it found them
    n = x.shape[-1] // 3 * 3
    return torch.maximum(torch.maximum(x[..., 0:n:3], x[..., 1:n:3]), x[..., 2:n:3])
