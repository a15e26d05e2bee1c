"""BeatNet: how likely each 20 ms frame is a beat or a downbeat.

A causal convolutional-recurrent network over a logarithmic spectrogram, published as three
checkpoints. The mean of their probabilities is far better than any one of them, so the three are
one model here.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SAMPLE_RATE = 22_050
HOP_LENGTH = 441
FRAME_RATE = SAMPLE_RATE / HOP_LENGTH
"""Frames per second (50)."""

# BeatNet's training recipe (madmom's processors as its `LOG_SPECT` sets them).
_WIN_LENGTH = 1411
_N_BINS = _WIN_LENGTH // 2
_BANDS_PER_OCTAVE = 24
_F_MIN_HZ, _F_MAX_HZ, _F_REF_HZ = 30.0, 17_000.0, 440.0
_N_FEATURES = 272
_CHANNELS = 150
_KERNEL = 10
_BLOCK_FRAMES = 1024
"""Frames convolved at a time: this many fit into a processor's cache."""


def filter_bank() -> NDArray[np.float32]:
    """Triangular filters, 24 per octave, each summing to one, float32 ``[705, 136]``.

    The checkpoints were trained with bin frequencies spaced 22050/1410 Hz although the FFT has 1411
    points; the bank keeps that.
    """
    low = np.floor(np.log2(_F_MIN_HZ / _F_REF_HZ) * _BANDS_PER_OCTAVE)
    high = np.ceil(np.log2(_F_MAX_HZ / _F_REF_HZ) * _BANDS_PER_OCTAVE)
    centres = _F_REF_HZ * 2.0 ** (np.arange(low, high) / _BANDS_PER_OCTAVE)
    centres = centres[(centres >= _F_MIN_HZ) & (centres <= _F_MAX_HZ)]
    bins = np.arange(_N_BINS) * SAMPLE_RATE / (2 * _N_BINS)
    nearest = np.clip(bins.searchsorted(centres), 1, _N_BINS - 1)
    nearest -= centres - bins[nearest - 1] < bins[nearest] - centres
    corners = np.unique(nearest)
    bank = np.zeros((_N_BINS, len(corners) - 2))
    for i, (start, centre, stop) in enumerate(
        zip(corners[:-2], corners[1:-1], corners[2:], strict=True)
    ):
        if stop - start < 2:
            bank[start, i] = 1.0
            continue
        bank[start:centre, i] = np.linspace(0.0, 1.0, centre - start, endpoint=False)
        bank[centre:stop, i] = np.linspace(1.0, 0.0, stop - centre, endpoint=False)
    return np.asarray(bank / bank.sum(axis=0), dtype=np.float32)


class BeatFrontEnd(nn.Module):
    """Log-frequency spectrogram and its rising part."""

    bank: Tensor
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bank", torch.from_numpy(filter_bank()))
        window = torch.hann_window(_WIN_LENGTH, periodic=False, dtype=torch.float64)
        self.register_buffer("window", window.float())

    def forward(self, waveform: Tensor) -> Tensor:
        """Compute the features of centred frames; outside the waveform there is silence.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, full scale ±1, not level-normalised.

        Returns:
            float32 ``[B, ⌈T / 441⌉, 272]``: 136 bands of log10(1 + magnitude), then their
            half-wave-rectified difference from the previous frame (0 in the first). Silence gives
            zeros.
        """
        n_frames = -(-waveform.shape[-1] // HOP_LENGTH)
        padded = nn.functional.pad(waveform, (_WIN_LENGTH // 2, _WIN_LENGTH))
        frames = padded.unfold(-1, _WIN_LENGTH, HOP_LENGTH)[:, :n_frames]
        magnitude = torch.fft.rfft(frames * self.window)[..., :_N_BINS].abs()
        bands = torch.log10(1.0 + magnitude @ self.bank)
        rise = torch.diff(bands, dim=1, prepend=bands[:, :1]).clamp_min(0.0)
        return torch.cat([bands, rise], dim=-1)


class BeatNet(nn.Module):
    """One BeatNet network (402,325 parameters).

    References:
        Heydari, Cwitkowitz & Duan, "BeatNet: CRNN and particle filtering for online joint beat,
        downbeat and meter tracking", ISMIR 2021. Weights CC-BY-4.0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, 2, _KERNEL)
        self.linear0 = nn.Linear(2 * ((_N_FEATURES - _KERNEL + 1) // 2), _CHANNELS)
        self.lstm = nn.LSTM(_CHANNELS, _CHANNELS, num_layers=2, batch_first=True)
        self.linear = nn.Linear(_CHANNELS, 3)

    def recur(self, pooled: Tensor) -> Tensor:
        """Map pooled features ``[B, N, 262]`` to logits ``[B, N, 3]``: beat, downbeat, neither."""
        hidden, _ = self.lstm(self.linear0(pooled))
        logits: Tensor = self.linear(hidden)
        return logits


class BeatEnsemble(nn.Module):
    """Front-end and the mean of several BeatNets."""

    def __init__(self, n_networks: int = 3) -> None:
        super().__init__()
        self.front_end = BeatFrontEnd()
        self.networks = [BeatNet() for _ in range(n_networks)]
        self._registered = nn.ModuleList(self.networks)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "BeatEnsemble":
        """Build from the published checkpoints' tensors, named ``1.<name>``, ``2.<name>``, ….

        Raises:
            RuntimeError: A checkpoint has missing, extra or misshapen tensors.
        """
        numbers = sorted({name.partition(".")[0] for name in tensors})
        ensemble = cls(len(numbers))
        for number, network in zip(numbers, ensemble.networks, strict=True):
            prefix = f"{number}."
            network.load_state_dict(
                {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            )
        return ensemble.eval()

    def forward(self, waveform: Tensor) -> Tensor:
        """Return the probabilities of a beat and a downbeat in every frame.

        The networks are causal: a frame depends on the past, and on 32 ms ahead through its FFT.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, full scale ±1.

        Returns:
            float32 ``[B, ⌈T / 441⌉, 2]``, 0 to 1, beat and downbeat exclusive of each other.
        """
        pooled = self._convolve(self.front_end(waveform))
        logits = torch.stack(
            [network.recur(p) for network, p in zip(self.networks, pooled, strict=True)]
        )
        return logits.softmax(-1).mean(0)[..., :2]

    def _convolve(self, features: Tensor) -> tuple[Tensor, ...]:
        """Run the first layers of all networks as one convolution: each ``[B, N, 262]``."""
        b, n, d = features.shape
        weight = torch.cat([network.conv1.weight for network in self.networks])
        bias = torch.cat([n.conv1.bias for n in self.networks if n.conv1.bias is not None])
        # Rectifying after the pooling gives the same result on half as many values.
        pooled = torch.cat(
            [
                nn.functional.max_pool1d(nn.functional.conv1d(rows, weight, bias), 2).relu()
                for rows in torch.split(features.reshape(b * n, 1, d), _BLOCK_FRAMES)
            ]
        )
        return pooled.view(b, n, len(self.networks), -1).unbind(2)
