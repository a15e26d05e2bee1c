"""Key probabilities from a spectrum in thirds of a semitone, from a small equivariant network."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from models.frontends import BandSums

SAMPLE_RATE = 22_050
WIN_LENGTH = 4096
HOP_LENGTH = 2048
FRAMES_TOGETHER = 4
"""Frames of the transform whose mean is one frame of the network: 2.7 per second."""

BANDS_PER_OCTAVE = 36
N_OCTAVES = 5
N_BANDS = N_OCTAVES * BANDS_PER_OCTAVE
_C2_HZ = 440.0 * 2.0 ** (-33 / 12)
_LOUDEST = 1000.0
_CHANNELS = 10
HIDDEN = 32
_WIDE = 8
"""Padding from which on oneDNN convolves already padded input six times as fast."""


class KeyBands(nn.Module):
    """Magnitudes in bands of a third of a semitone, C2 to B6."""

    def __init__(self, frames_together: int = FRAMES_TOGETHER) -> None:
        super().__init__()
        self._together = frames_together
        hz = torch.arange(WIN_LENGTH // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / WIN_LENGTH
        steps = torch.arange(-1, N_BANDS + 1, dtype=torch.float64)
        # The first band lies below C, so that the middle one of three is in tune.
        edges = _C2_HZ * 2.0 ** ((steps - 1) / BANDS_PER_OCTAVE)
        # At least as wide as the main lobe.
        width = (edges[2:] - edges[1:-1]).clamp_min(SAMPLE_RATE / WIN_LENGTH)
        filters = (1.0 - (hz[:, None] - edges[1:-1]).abs() / width).clamp_min(0.0)
        filters = (filters / filters.sum(0)).float()
        self._bands = BandSums(filters, torch.hann_window(WIN_LENGTH), WIN_LENGTH, power=1)

    def forward(self, waveform: Tensor) -> Tensor:
        """Measure float32 ``[B, T]`` at 22,050 Hz, T ≥ 10,240.

        Returns:
            float32 ``[B, N, 180]``, the mean of each row 1; silence gives zeros.
        """
        bands = self.magnitudes(waveform)
        level = bands.mean((1, 2), keepdim=True)
        relative: Tensor = (bands / level.clamp_min(1e-7)).clamp_max(_LOUDEST)
        return relative

    def magnitudes(self, waveform: Tensor) -> Tensor:
        """Measure as `forward` does, at the level of the waveform."""
        bands = self._bands(waveform.unfold(-1, WIN_LENGTH, HOP_LENGTH))
        n = bands.shape[1] // self._together
        together: Tensor = bands[:, : n * self._together].unflatten(1, (n, self._together)).mean(2)
        return together


def compressed(bands: Tensor) -> Tensor:
    """Bring magnitudes to the scale that the network takes."""
    return 0.5 * torch.log1p(10.0 * bands)


def _around(x: Tensor) -> Tensor:
    """Extend ``[B, C, 12, N]`` circularly, so that C follows B."""
    return torch.cat([x, x[:, :, :11]], dim=2)


def _stage(n_in: int, n_out: int, kernel: tuple[int, int], stride: int = 1) -> nn.Sequential:
    padding = (kernel[0] // 2, kernel[1] // 2)
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, kernel, stride=(stride, 1), padding=padding),
        nn.BatchNorm2d(n_out),
        nn.GELU(),
    )


class _Block(nn.Module):
    """A residual block in which each pitch class sees all twelve, and some time around."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.listen = nn.Conv2d(
            channels,
            channels,
            (12, 3),
            padding=(0, dilation),
            dilation=(1, dilation),
            groups=channels,
        )
        self.norm: nn.Module = nn.BatchNorm2d(channels)
        self.widen = nn.Conv2d(channels, 2 * channels, 1)
        self.narrow = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, C, 12, N]`` to the same shape."""
        y = self.norm(self._listen(_around(x)))
        mixed: Tensor = x + self.narrow(functional.gelu(self.widen(y)))
        return mixed

    def _listen(self, x: Tensor) -> Tensor:
        reach = self.listen.dilation[1]
        if x.device.type != "cpu" or reach < _WIDE:
            listened: Tensor = self.listen(x)
            return listened
        x = functional.pad(x, (reach, reach))
        weight, bias = self.listen.weight, self.listen.bias
        return functional.conv2d(
            x, weight, bias, dilation=self.listen.dilation, groups=self.listen.groups
        )


class KeyTrunk(nn.Module):
    """Maps bands to features of each pitch class and time."""

    def __init__(self, dilations: Sequence[int] = (1, 2, 4)) -> None:
        super().__init__()
        wide = 2 * _CHANNELS
        self.spectral = nn.Sequential(
            _stage(1, _CHANNELS, (7, 3)),
            _stage(_CHANNELS, wide, (5, 3), stride=BANDS_PER_OCTAVE // 12),
            _stage(wide, wide, (3, 3)),
        )
        self.fold = _stage(wide * N_OCTAVES, HIDDEN, (1, 1))
        self.blocks = nn.Sequential(*(_Block(HIDDEN, dilation) for dilation in dilations))

    def settle(self) -> None:
        """Prepare for inference only: fold the norms in, and put the channels innermost."""
        for stage in (*self.spectral, self.fold):
            stage[0], stage[1] = fuse_conv_bn_eval(stage[0], stage[1]), nn.Identity()
        for block in cast("Iterable[_Block]", self.blocks):
            norm = cast("nn.BatchNorm2d", block.norm)
            block.listen, block.norm = fuse_conv_bn_eval(block.listen, norm), nn.Identity()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, bands: Tensor) -> Tensor:
        """Map compressed ``[B, N, 180]`` to ``[B, 32, 12, N]``, C first."""
        x = self.spectral(bands.transpose(1, 2)[:, None])
        x = x.unflatten(2, (N_OCTAVES, 12)).flatten(1, 2)
        heard: Tensor = self.blocks(self.fold(x))
        return heard


class KeyHead(nn.Module):
    """Maps features over the whole time to a key."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2 * HIDDEN, HIDDEN, (12, 1))
        self.second = nn.Conv2d(HIDDEN, HIDDEN, (12, 1))
        self.modes = nn.Conv2d(HIDDEN, 2, 1)

    def forward(self, heard: Tensor) -> Tensor:
        """Map ``[B, 32, 12, N]``, N ≥ 2, to logits ``[B, 24]``: C major … B major, C minor …."""
        x = torch.cat([heard.mean(-1, keepdim=True), heard.std(-1, keepdim=True)], dim=1)
        x = functional.gelu(self.first(_around(x)))
        x = functional.gelu(self.second(_around(x)))
        logits: Tensor = self.modes(x)[..., 0].flatten(1)
        return logits


class KeyNetwork(nn.Module):
    """Bands, trunk and head (see `models/weights/afa-key-2.md`).

    If music in the middle octaves moves by a semitone, its twelve outputs are the same, moved by
    one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bands = KeyBands()
        self.trunk = KeyTrunk()
        self.head = KeyHead()

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "KeyNetwork":
        """Build from a checkpoint's tensors, for inference.

        Raises:
            RuntimeError: Tensors are missing, extra or misshapen.
        """
        network = cls()
        network.load_state_dict(dict(tensors))
        network.eval().trunk.settle()
        return network

    def forward(self, waveform: Tensor) -> Tensor:
        """Find the key of float32 ``[B, T]`` at 22,050 Hz, in tune with 440 Hz, T ≥ 18,432.

        Returns:
            Probabilities, float32 ``[B, 24]``: C major … B major, C minor … B minor.
        """
        logits: Tensor = self.head(self.trunk(compressed(self.bands(waveform))))
        return logits.softmax(-1)
