"""S-KEY: key probabilities from a variable-Q transform, from a small equivariant network."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLE_RATE = 22_050
CROP_LENGTH = 15 * SAMPLE_RATE
"""Samples that the network takes at a time, as in training."""

_HOP_LENGTH = 512
_N_OCTAVES = 9
_BINS_PER_OCTAVE = 12
_KERNEL_LENGTH = 128
_N_BINS = 99
_N_CROPPED = 84
_TOP_DB = 80.0
_BLOCK = 64
_N_FFT = 4096
_VALUES = 1 << 18
"""Values between the layers of a block at a time."""
_STAGES = ((2, 7), (3, 7), (40, 7), (40, 7), (30, 7), (10, 5), (3, 5))
"""Channels and kernel size of every stage."""


class Vqt(nn.Module):
    """Variable-Q transform: nine octaves, each from a signal at half the rate of the one above.

    The low-pass filter before each halving runs as a product of blocks with a Toeplitz matrix,
    which costs a twentieth of a one-channel convolution and gives the same result. On a CPU, using
    spectra takes half of that.
    """

    kernels: Tensor
    lengths: Tensor
    decimator: Tensor
    response: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        of_octaves = [
            torch.cat([tensors[f"cqt_kernels_{part}_{i}"][:, 0] for part in ("real", "imag")])
            for i in range(_N_OCTAVES)
        ]
        self.register_buffer("kernels", torch.stack(of_octaves))
        self.register_buffer("lengths", tensors["lenghts"])
        taps = tensors["lowpass_filter"].flatten()
        self._n_taps = len(taps)
        decimator = torch.zeros(self._n_taps + 2 * (_BLOCK - 1), _BLOCK)
        for i in range(_BLOCK):
            decimator[2 * i : 2 * i + self._n_taps, i] = taps
        self.register_buffer("decimator", decimator)
        response = torch.fft.rfft(taps.double(), _N_FFT).to(torch.complex64)
        self.register_buffer("response", response, persistent=False)

    def forward(self, waveform: Tensor) -> Tensor:
        """Transform.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, T ≥ 2¹⁴ and even enough for nine halvings.

        Returns:
            Magnitudes, float32 ``[B, 99, N]`` from 27.5 Hz up, 12 per octave, one frame per 512
            samples.
        """
        octaves, signal, hop = [], waveform, _HOP_LENGTH
        for i in range(_N_OCTAVES):
            if i:
                signal, hop = self._halve(signal), hop // 2
            frames = _mirrored(signal, _KERNEL_LENGTH // 2).unfold(-1, _KERNEL_LENGTH, hop)
            real, imaginary = (frames @ self.kernels[i].T).square().chunk(2, dim=-1)
            octaves.append((real + imaginary).sqrt())
        n_frames = min(octave.shape[1] for octave in octaves)
        magnitude = torch.cat([octave[:, :n_frames] for octave in reversed(octaves)], dim=-1)
        scaled: Tensor = magnitude[..., -_N_BINS:] * self.lengths.sqrt()
        return scaled.transpose(1, 2)

    def _halve(self, signal: Tensor) -> Tensor:
        """Low-pass and keep every second sample of ``[B, T]``."""
        pad = (self._n_taps - 1) // 2
        n = (signal.shape[-1] + 2 * pad - self._n_taps) // 2 + 1
        if signal.device.type == "cpu":
            return self._halve_spectra(signal, pad)[:, :n]
        n_blocks = -(-n // _BLOCK)
        needed = (n_blocks - 1) * 2 * _BLOCK + len(self.decimator)
        padded = functional.pad(signal, (pad, max(0, needed - pad - signal.shape[-1])))
        blocks = padded.unfold(-1, len(self.decimator), 2 * _BLOCK)[:, :n_blocks]
        halved: Tensor = blocks @ self.decimator
        return halved.flatten(1)[:, :n]

    def _halve_spectra(self, signal: Tensor, pad: int) -> Tensor:
        """Halve by overlap-save, with zeros after the signal up to a whole block."""
        hop = _N_FFT - self._n_taps
        n_blocks = -(-signal.shape[-1] // hop)
        behind = n_blocks * hop + self._n_taps - (pad + 1) - signal.shape[-1]
        blocks = functional.pad(signal, (pad + 1, behind)).unfold(-1, _N_FFT, hop)
        spectra = torch.fft.rfft(blocks).mul_(self.response)
        # Dropping every second sample folds the upper half of the band onto the lower, mirrored.
        folded = spectra[..., : _N_FFT // 4 + 1] + spectra[..., _N_FFT // 4 :].flip(-1).conj()
        halved: Tensor = torch.fft.irfft(folded.mul_(0.5), _N_FFT // 2)
        return halved[..., self._n_taps // 2 :].flatten(1)


def _mirrored(signal: Tensor, n: int) -> Tensor:
    """Mirror n samples of ``[B, T]`` at both ends, in a fifth of the time of torch's own."""
    before, behind = signal[:, 1 : n + 1].flip(-1), signal[:, -n - 1 : -1].flip(-1)
    return torch.cat([before, signal, behind], dim=-1)


def _normalise(x: Tensor) -> Tensor:
    """Layer norm of ``[B, C, F, N]`` over everything but the batch, without learned scale."""
    points = x.permute(0, 2, 3, 1)
    if points.is_contiguous():  # innermost channels stay innermost
        return functional.layer_norm(points, points.shape[1:]).permute(0, 3, 1, 2)
    return functional.layer_norm(x, x.shape[1:])


class Stage(nn.Module):
    """Halves the time resolution, then applies one ConvNeXt block."""

    def __init__(self, n_in: int, n_out: int, kernel: int) -> None:
        super().__init__()
        self.halve = nn.Conv2d(n_in, n_out, (1, 2), stride=(1, 2))
        self.dwconv = nn.Conv2d(
            n_out, n_out, kernel, padding=kernel // 2, padding_mode="replicate", groups=n_out
        )
        self.pwconv1 = nn.Linear(n_out, 4 * n_out)
        self.pwconv2 = nn.Linear(4 * n_out, n_out)
        self.gamma = nn.Parameter(torch.ones(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, C, F, N]`` to ``[B, C', F, N // 2]``."""
        x = functional.gelu(self.halve(_normalise(x)))
        if x.device.type == "cpu":  # channels innermost take four fifths of the time there
            x = x.contiguous(memory_format=torch.channels_last)
        y = _normalise(self.dwconv(x)).permute(0, 2, 3, 1)
        if y.device.type == "cpu":  # so that values between the layers fit into the caches
            points = torch.split(y.reshape(-1, y.shape[-1]), _VALUES // (4 * y.shape[-1]))
            y = torch.cat([self._of_points(some) for some in points]).view(y.shape)
        else:
            y = self._of_points(y)
        mixed: Tensor = x + y.permute(0, 3, 1, 2)
        return mixed

    def _of_points(self, y: Tensor) -> Tensor:
        """Map the channels of each point, ``[…, C]``."""
        mapped: Tensor = self.gamma * self.pwconv2(functional.gelu(self.pwconv1(y)))
        return mapped


class SKey(nn.Module):
    """Transform and ChromaNet (47 K parameters).

    References:
        Kong, Meseguer-Brocal, Lostanlen, Lagrange & Hennequin, "S-KEY: self-supervised learning of
        major and minor keys from audio", ICASSP 2025. Weights MIT, © Deezer SA.
    """

    def __init__(self, vqt: Vqt) -> None:
        super().__init__()
        self.vqt = vqt
        channels = [1, *(c for c, _ in _STAGES)]
        self.stages = nn.Sequential(
            *(
                Stage(n_in, n_out, kernel)
                for n_in, (n_out, kernel) in zip(channels, _STAGES, strict=False)
            )
        )
        self.classifier = nn.Conv2d(channels[-1], 2, 1)
        self.batch_norm = nn.BatchNorm2d(2, affine=False)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "SKey":
        """Build from the published checkpoint's tensors.

        Raises:
            KeyError: A tensor of the transform is missing.
            RuntimeError: The network has missing, extra or misshapen tensors.
        """
        split: dict[str, dict[str, Tensor]] = {"hcqt": {}, "chromanet": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            split[part][rest] = tensor
        model = cls(Vqt(split["hcqt"]))
        state = {f"vqt.{k}": v for k, v in model.vqt.state_dict().items()}
        for name, tensor in split["chromanet"].items():
            parts = name.split(".")
            if parts[0] == "time_downsampling_blocks":
                parts = ["stages", parts[1], "halve", parts[3]]
            elif parts[0] == "convnext_blocks":
                parts[0] = "stages"
            state[".".join(parts)] = tensor
        model.load_state_dict(state)
        return model.eval()

    def forward(self, waveform: Tensor, shifts: int = 1) -> Tensor:
        """Find the key.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, peak of the whole track at 1; 15 s in
                training.
            shifts: Number of crops of the transform to average, up to 16, each a semitone higher.

        Returns:
            Probabilities, float32 ``[B, 24]``: C major … B major, C minor … B minor.
        """
        decibels = 10.0 * self.vqt(waveform).clamp_min(1e-10).log10()
        floor = decibels.amax((1, 2), keepdim=True) - _TOP_DB
        image = (torch.maximum(decibels, floor) / _TOP_DB + 1.0)[:, None]
        crops = [self._classify(image[:, :, i : i + _N_CROPPED]).roll(i, -1) for i in range(shifts)]
        # The network counts majors from A and minors from B.
        mean = torch.stack(crops).mean(0)
        return torch.cat([mean[:, 0].roll(9, -1), mean[:, 1].roll(11, -1)], dim=-1)

    def _classify(self, image: Tensor) -> Tensor:
        """Map ``[B, 1, 84, N]`` to probabilities ``[B, 2, 12]``."""
        features = self.stages(image)
        octaves = features.reshape(
            *features.shape[:2], _N_CROPPED // _BINS_PER_OCTAVE, _BINS_PER_OCTAVE, -1
        )
        pooled = octaves.mean(dim=(2, 4))[..., None]
        logits: Tensor = self.batch_norm(self.classifier(pooled))
        return logits.flatten(1).softmax(-1).view(-1, 2, _BINS_PER_OCTAVE)
