"""EfficientAT's mn04: AudioSet's 527 sound classes, and an embedding, from ten seconds.

A MobileNetV3 of width .4 over a mel spectrogram, built from the published weights with its batch
norms folded into the convolutions. Only the weights are used; the code is afa's own.

References:
    Schmid, Koutini and Widmer, Efficient large-scale audio tagging via transformer-to-CNN knowledge
    distillation (ICASSP 2023); Howard et al., Searching for MobileNetV3 (ICCV 2019), table 1.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.folding import Activation, folded, linear
from models.frontends import BandSums, kaldi_bands

SAMPLE_RATE = 32_000

_STRIDES = (1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1)
_FIRST_HARD_SWISH = 7  # blocks before it have ReLU
_EPSILON = 1e-3


class EfficientAtMel(nn.Module):
    """EfficientAT's input: 128 log-mel bands of the pre-emphasised signal, 100 frames per second.

    References:
        ``models/preprocess.py`` of the repository fschmid56/EfficientAT, at evaluation.
    """

    n_fft = 1024
    frame_length = 800
    hop_length = 320
    preemphasis = 0.97

    def __init__(self) -> None:
        super().__init__()
        window = torch.hann_window(self.frame_length, periodic=False)
        bands = torch.from_numpy(kaldi_bands(SAMPLE_RATE, self.n_fft, 128, 0.0, 15_000.0))
        self.bands = BandSums(bands.T, window, self.n_fft, power=2)

    def forward(self, windows: Tensor) -> Tensor:
        """Compute the bands.

        Args:
            windows: float32 ``[B, T]`` at 32 kHz, full scale ±1, T ≥ 514.

        Returns:
            float32 ``[B, 128, N]``, N = 1 + (T - 1) // 320; silence is (ln 1e-5 + 4.5) / 5 = -1.40.
        """
        emphasised = windows[:, 1:] - self.preemphasis * windows[:, :-1]
        # Frames are centred in n_fft samples; at either end, the signal's reflection fills them.
        margin = self.n_fft // 2
        around = functional.pad(emphasised[:, None], (margin, margin), mode="reflect")[:, 0]
        rest = (self.n_fft - self.frame_length) // 2
        frames = around[:, rest:-rest].unfold(-1, self.frame_length, self.hop_length)
        power = self.bands(frames).transpose(1, 2)
        bands: Tensor = ((power + 1e-5).log() + 4.5) / 5
        return bands


class _Block(nn.Module):
    """An inverted residual: widen, filter each channel, weigh the channels (in some), narrow."""

    def __init__(self, tensors: Mapping[str, Tensor], number: int, stride: int) -> None:
        super().__init__()
        name = f"features.{number}.block."
        layers = sorted({key.split(".")[3] for key in tensors if key.startswith(name)})
        weighs = next(
            (n for n in layers if f"{name}{n}.conc_se_layers.0.fc1.weight" in tensors), ""
        )
        plain = [name + n for n in layers if n != weighs]
        activation: Activation = "hardswish" if number >= _FIRST_HARD_SWISH else "relu"
        self.widen = None
        if len(plain) == 3:
            self.widen = folded(tensors, plain[0], _EPSILON, activation=activation)
        self.filter = folded(tensors, plain[-2], _EPSILON, stride, True, activation)
        self.squeeze = self.excite = None
        if weighs:
            self.squeeze = linear(tensors, f"{name}{weighs}.conc_se_layers.0.fc1")
            self.excite = linear(tensors, f"{name}{weighs}.conc_se_layers.0.fc2")
        self.narrow = folded(tensors, plain[-1], _EPSILON)
        n_in = (self.widen or self.filter).in_channels
        self.is_residual = stride == 1 and n_in == self.narrow.out_channels

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.filter(self.widen(image) if self.widen is not None else image)
        if self.squeeze is not None and self.excite is not None:
            weights = self.excite(functional.relu(self.squeeze(hidden.mean(dim=(2, 3)))))
            hidden = hidden * torch.sigmoid(weights)[:, :, None, None]
        output: Tensor = self.narrow(hidden)
        return output + image if self.is_residual else output


class EfficientAt(nn.Module):
    """The whole network, front-end included.

    Args:
        tensors: The published weights under their original names.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.mel = EfficientAtMel()
        self.stem = folded(tensors, "features.0", _EPSILON, 2, activation="hardswish")
        self.blocks = nn.Sequential(
            *(_Block(tensors, number, stride) for number, stride in enumerate(_STRIDES, start=1))
        )
        head = f"features.{len(_STRIDES) + 1}"
        self.head = folded(tensors, head, _EPSILON, activation="hardswish")
        self.hidden = linear(tensors, "classifier.2")
        self.output = linear(tensors, "classifier.5")

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Tag windows.

        Args:
            windows: float32 ``[B, T]`` at 32 kHz, full scale ±1; trained on 10 s, T ≥ 514.

        Returns:
            ``tags``: probabilities ``[B, 527]``, not exclusive. ``embedding``: ``[B, 384]``, the
            mean over the image before the classifier. The output for silence is meaningless: gate
            before.
        """
        image = self.stem(self.mel(windows)[:, None])
        embedding = self.head(self.blocks(image)).mean(dim=(2, 3))
        logits = self.output(functional.hardswish(self.hidden(embedding)))
        return {"tags": torch.sigmoid(logits), "embedding": embedding}
