"""musicnn: 50 music tags and a 753-dimensional embedding from three seconds of audio.

A port of the published TensorFlow graph to torch with its inference-time batch norms folded away;
the two checkpoints (MagnaTagATune, Million Song Dataset) differ only in weights and vocabulary.

References:
    Pons et al., End-to-end learning for music audio tagging at scale (ISMIR 2018); Pons and Serra,
    musicnn: pre-trained convolutional neural networks for music audio tagging (ISMIR 2019).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.frontends import MusicnnMel

_EPSILON = 1e-3  # tf.layers.batch_normalization's default

_FADED = 1e-4
"""A filter has faded if its output moves by no more when its inputs, within ±2, move by one."""

_LARGE = 50
"""Kernels with at least this many values are convolved by FFT on a CPU."""
_FILTERS_TOGETHER = 8
"""Filters at a time, whose spectra fit into a processor's cache."""

# fmt: off
MSD_TAGS = (
    "rock", "pop", "alternative", "indie", "electronic", "female vocalists", "dance", "00s",
    "alternative rock", "jazz", "beautiful", "metal", "chillout", "male vocalists", "classic rock",
    "soul", "indie rock", "Mellow", "electronica", "80s", "folk", "90s", "chill", "instrumental",
    "punk", "oldies", "blues", "hard rock", "ambient", "acoustic", "experimental",
    "female vocalist", "guitar", "Hip-Hop", "70s", "party", "country", "easy listening", "sexy",
    "catchy", "funk", "electro", "heavy metal", "Progressive rock", "60s", "rnb", "indie pop",
    "sad", "House", "happy",
)
"""Vocabulary of the Million Song Dataset checkpoint, in the order of its outputs."""

MTT_TAGS = (
    "guitar", "classical", "slow", "techno", "strings", "drums", "electronic", "rock", "fast",
    "piano", "ambient", "beat", "violin", "vocal", "synth", "female", "indian", "opera", "male",
    "singing", "vocals", "no vocals", "harpsichord", "loud", "quiet", "flute", "woman",
    "male vocal", "no vocal", "pop", "soft", "sitar", "solo", "man", "classic", "choir", "voice",
    "new age", "dance", "male voice", "female vocal", "beats", "harp", "cello", "no voice", "weird",
    "country", "metal", "female voice", "choral",
)
"""Vocabulary of the MagnaTagATune checkpoint, in the order of its outputs."""
# fmt: on


class _ScaledMax(nn.Module):
    """A 2-D convolution, ReLU, batch norm and the maximum over frequency.

    ReLU is monotone and the norm is a scale and a shift per channel, so both can follow the maximum
    (or the minimum, if the scale is negative): they then touch one value per frame, not every band.
    Filters with a negative scale are stored negated, so that all take the maximum.

    In training, weight decay has faded most filters out: 497 of MSD's 561 are 0. Their outputs are
    constant and not computed.

    Attributes:
        is_alive: Which of the filters are computed, ``[D]``, A of them.
        constants: Output of each filter if it has faded, ``[D]``.
    """

    weight: Tensor
    bias: Tensor
    sign: Tensor
    scale: Tensor
    shift: Tensor
    is_alive: Tensor
    constants: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], number: int, same: bool) -> None:
        super().__init__()
        kernel = tensors[_name("conv2d", number) + "/kernel"]  # [time, mel, 1, out]
        bias = tensors[_name("conv2d", number) + "/bias"]
        scale, shift = _norm(tensors, number + 1)
        alive = kernel.abs().sum(dim=(0, 1, 2)) * scale.abs() > _FADED
        self.register_buffer("is_alive", alive)
        self.register_buffer("constants", functional.relu(bias) * scale + shift)
        kernel, bias, scale, shift = (part[..., alive] for part in (kernel, bias, scale, shift))
        sign = torch.where(scale < 0, -1.0, 1.0)
        self.register_buffer("weight", (kernel * sign).permute(3, 2, 1, 0).contiguous())
        self.register_buffer("bias", (bias * sign)[:, None])
        self.register_buffer("sign", sign[:, None])
        self.register_buffer("scale", scale[:, None])
        self.register_buffer("shift", shift[:, None])
        length = kernel.shape[0]
        # TensorFlow's "same" puts the odd sample of padding at the end.
        self.padding = ((length - 1) // 2, length // 2) if same else (3, 3)
        self._spectra = torch.empty(0, 0, 0)  # of the kernels, for the latest length

    def forward(self, mel: Tensor) -> Tensor:
        """Map ``[B, 1, F, N]`` to ``[B, A, N]``."""
        by_spectra = mel.device.type == "cpu" and self.weight[0].numel() >= _LARGE
        loudest = self._by_spectra(mel) if by_spectra else self._directly(mel)
        return functional.relu((loudest + self.bias) * self.sign) * self.scale + self.shift

    def _directly(self, mel: Tensor) -> Tensor:
        return functional.conv2d(functional.pad(mel, self.padding), self.weight).amax(dim=2)

    def _by_spectra(self, mel: Tensor) -> Tensor:
        """Convolve by FFT, which on a CPU takes half the time for kernels of many values.

        Both dimensions are circular: time is padded with as much silence as the kernel spans; the
        bands are not, since only those that see the whole kernel are wanted.
        """
        n_bands, n = mel.shape[2:]
        n_circle = _fast_length(n + max(self.padding))
        n_heard = n_bands - self.weight.shape[2] + 1
        image, kernels = torch.fft.rfft(mel.transpose(2, 3), n_circle, dim=2), self._spectra
        if kernels.shape[1] != image.shape[2]:
            kernels = self._spectra = self._kernel_spectra(n_circle, n_bands)
        if n_heard < n_bands:
            image = torch.fft.fft(image)
        loudest = []
        for block in torch.split(kernels, _FILTERS_TOGETHER):
            spectra = image * block
            if n_heard < n_bands:
                spectra = torch.fft.ifft(spectra)[..., :n_heard]
            loudest.append(torch.fft.irfft(spectra, n_circle, dim=2)[:, :, :n].amax(dim=3))
        return torch.cat(loudest, dim=1)

    def _kernel_spectra(self, n_circle: int, n_bands: int) -> Tensor:
        """Conjugate spectra of the kernels, ``[A, n_circle // 2 + 1, n_bands]``."""
        kernels = self.weight[:, 0].transpose(1, 2)
        kernels = functional.pad(kernels, (0, 0, 0, n_circle - kernels.shape[1]))
        spectra: Tensor = torch.fft.rfft(kernels.roll(-self.padding[0], dims=1), dim=1)
        if kernels.shape[2] > 1:
            spectra = torch.fft.fft(spectra, n_bands)
        return spectra.conj_physical()


def _fast_length(n: int) -> int:
    """Return the least length ≥ ``n`` with a fast transform: 2 or 3 times a power of two."""
    power = 1 << (n - 1).bit_length()
    return min(size for size in (power * 3 // 4, power) if size >= n)


class _TimeConvolution(nn.Module):
    """A 7-tap convolution over time, ReLU and batch norm: ``[B, D, N]`` to ``[B, 64, N]``."""

    weight: Tensor
    bias: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], number: int) -> None:
        super().__init__()
        kernel = tensors[_name("conv2d", number) + "/kernel"]  # [7, in, 1, out]
        self.register_buffer("weight", kernel[:, :, 0].permute(2, 1, 0).contiguous())
        self.register_buffer("bias", tensors[_name("conv2d", number) + "/bias"])
        scale, shift = _norm(tensors, number + 1)
        self.register_buffer("scale", scale[:, None])
        self.register_buffer("shift", shift[:, None])

    def join(self, are_constant: Tensor, constants: Tensor) -> None:
        """Merge the constant inputs into one: the last, whose value is then 1."""
        together = (self.weight * (constants * are_constant)[:, None]).sum(dim=1, keepdim=True)
        self.weight = torch.cat([self.weight[:, ~are_constant], together], dim=1)

    def forward(self, features: Tensor) -> Tensor:
        response = functional.conv1d(features, self.weight, self.bias, padding=3)
        return functional.relu(response) * self.scale + self.shift


class Musicnn(nn.Module):
    """The whole network, front-end included.

    Args:
        tensors: A checkpoint under TensorFlow's names.
    """

    input_scale: Tensor
    input_shift: Tensor
    alive: Tensor
    constants: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.mel = MusicnnMel()
        scale, shift = _norm(tensors, 0)
        self.register_buffer("input_scale", scale)
        self.register_buffer("input_shift", shift)
        front = [_ScaledMax(tensors, n, same=n >= 2) for n in range(5)]
        self.front = nn.ModuleList(front)
        self.register_buffer("constants", torch.cat([layer.constants for layer in front]))
        is_alive = torch.cat([layer.is_alive for layer in front])
        self.register_buffer("alive", is_alive.nonzero()[:, 0])
        middle = [_TimeConvolution(tensors, n) for n in (5, 6, 7)]
        middle[0].join(~is_alive, self.constants)
        self.middle = nn.ModuleList(middle)
        self.hidden = _dense(tensors, "dense", _norm(tensors, 9))
        self.output = _dense(tensors, "dense_1", _norm(tensors, 10))

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Tag windows.

        Args:
            windows: float32 ``[B, 48128]`` at 16 kHz, full scale ±1 (187 frames; other lengths of
                at least 512 samples work, with other results).

        Returns:
            ``tags``: probabilities ``[B, 50]``. ``embedding``: ``[B, 753]``, the mean over time of
            the features before the classifier. The output for silence is meaningless: gate before.
        """
        pooled = self.pooled(self.mel(windows))
        # Maximum and mean alternate, as TensorFlow's flatten leaves them.
        logits = self.output(functional.relu(self.hidden(pooled.flatten(1))))
        return {"tags": torch.sigmoid(logits), "embedding": pooled[..., 1]}

    def pooled(self, mel: Tensor) -> Tensor:
        """Map log-mel ``[B, 96, N]`` to 753 features' maximum and mean over time, ``[B, 753, 2]``.

        A constant filter's frames are known and not computed.
        """
        image = (mel * self.input_scale + self.input_shift)[:, None]
        front = torch.cat([layer(image) for layer in self.front], dim=1)
        one = functional.pad(front, (0, 0, 0, 1), value=1.0)
        stages = [front, self.middle[0](one)]
        for layer in self.middle[1:]:
            stages.append(layer(stages[-1]) + stages[-1])
        frames = torch.cat(stages, dim=1)
        pooled = torch.stack([frames.amax(dim=2), frames.mean(dim=2)], dim=2)
        known = self.constants[:, None].repeat(len(mel), 1, 2)
        known.index_copy_(1, self.alive, pooled[:, : len(self.alive)])
        return torch.cat([known, pooled[:, len(self.alive) :]], dim=1)


def _name(layer: str, number: int) -> str:
    """Return TensorFlow's automatic name of the ``number``-th layer of a kind."""
    return f"{layer}_{number}" if number else layer


def _norm(tensors: Mapping[str, Tensor], number: int) -> tuple[Tensor, Tensor]:
    """Turn a batch norm into its scale and shift at inference."""
    name = _name("batch_normalization", number)
    deviation = (tensors[name + "/moving_variance"] + _EPSILON).sqrt()
    scale = tensors[name + "/gamma"] / deviation
    return scale, tensors[name + "/beta"] - tensors[name + "/moving_mean"] * scale


def _dense(tensors: Mapping[str, Tensor], name: str, norm: tuple[Tensor, Tensor]) -> nn.Linear:
    """Build a dense layer with the batch norm of its input folded in."""
    kernel, bias = tensors[name + "/kernel"], tensors[name + "/bias"]  # [in, out]
    scale, shift = norm
    layer = nn.Linear(*kernel.shape)
    with torch.no_grad():
        layer.weight.copy_((kernel * scale[:, None]).T)
        layer.bias.copy_(bias + shift @ kernel)
    return layer
