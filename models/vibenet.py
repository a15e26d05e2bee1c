"""VibeNet: seven Spotify-style attributes from a window of audio.

An EfficientNet-B0 over a mel spectrogram, built from the published weights with its inference-time
batch norms folded into the convolutions. Only the weights are used; the code is afa's own.

References:
    Tan and Le, EfficientNet (ICML 2019); VibeNet 0.1.0's ONNX graph.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.folding import folded, linear, under
from models.frontends import VibenetMel
from models.precision import in_precision

ATTRIBUTES = (
    "acousticness",
    "danceability",
    "energy",
    "instrumentalness",
    "liveness",
    "speechiness",
    "valence",
)
"""In the order of the outputs."""

_LIKELIHOODS = ("acousticness", "instrumentalness", "liveness")  # logits; the others are values

# Stride of the first block, blocks (EfficientNet-B0, table 1 of the paper).
_STAGES = ((1, 1), (2, 2), (2, 2), (2, 3), (1, 3), (2, 4), (1, 1))
_EPSILON = 1e-5


class _Block(nn.Module):
    """An inverted residual: widen, filter each channel, weigh the channels, narrow."""

    def __init__(self, tensors: Mapping[str, Tensor], name: str, stride: int) -> None:
        super().__init__()
        widens = f"{name}.block.3.0.weight" in tensors  # the very first block does not
        layers = [f"{name}.block.{n}" for n in range(4 if widens else 3)]
        self.widen = folded(tensors, layers[0], _EPSILON, activation="swish") if widens else None
        self.filter = folded(tensors, layers[-3], _EPSILON, stride, True, "swish")
        self.squeeze = linear(tensors, layers[-2] + ".fc1")
        self.excite = linear(tensors, layers[-2] + ".fc2")
        self.narrow = folded(tensors, layers[-1], _EPSILON)
        n_in = (self.widen or self.filter).in_channels
        self.is_residual = stride == 1 and n_in == self.narrow.out_channels

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.filter(self.widen(image) if self.widen is not None else image)
        weights = self.excite(functional.silu(self.squeeze(hidden.mean(dim=(2, 3)))))
        output: Tensor = self.narrow(hidden * torch.sigmoid(weights)[:, :, None, None])
        return output + image if self.is_residual else output


class Vibenet(nn.Module):
    """The whole network, front-end included.

    Args:
        tensors: The published weights under their original names.
    """

    is_likelihood: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.precision = torch.float32
        self.mel = VibenetMel()
        # The published graph repeats the image to three equal channels: their weights add up.
        stem = dict(tensors)
        stem["backbone.features.0.0.weight"] = tensors["backbone.features.0.0.weight"].sum(
            dim=1, keepdim=True
        )
        self.stem = folded(stem, "backbone.features.0", _EPSILON, 2, activation="swish")
        self.blocks = nn.Sequential(
            *(
                _Block(tensors, f"backbone.features.{stage}.{n}", 1 if n else stride)
                for stage, (stride, n_blocks) in enumerate(_STAGES, start=1)
                for n in range(n_blocks)
            )
        )
        self.head = folded(tensors, "backbone.features.8", _EPSILON, activation="swish")
        n_features = self.head.out_channels
        self.norm = nn.LayerNorm(n_features, eps=_EPSILON)
        self.norm.load_state_dict(under("trunk.0.", tensors))
        self.trunk = linear(tensors, "trunk.1")
        self.output = nn.Linear(self.trunk.out_features, len(ATTRIBUTES))
        self.output.load_state_dict(
            {
                kind: torch.cat([tensors[f"heads.{name}.{kind}"] for name in ATTRIBUTES])
                for kind in ("weight", "bias")
            }
        )
        likelihoods = torch.tensor([name in _LIKELIHOODS for name in ATTRIBUTES])
        self.register_buffer("is_likelihood", likelihoods)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Estimate attributes.

        Args:
            windows: float32 ``[B, T]`` at 16 kHz, full scale ±1, at the pipeline's fixed loudness;
                trained on whole clips of about 30 s, T ≥ 640.

        Returns:
            ``attributes``: ``[B, 7]``, 0 to 1, in the order of `ATTRIBUTES`. The output for silence
            is meaningless: gate before.
        """
        mel = self.mel(windows)
        with in_precision(mel, self.precision):
            logits = self.logits(mel).float()
        values = torch.where(self.is_likelihood, torch.sigmoid(logits), logits.clamp(0, 1))
        return {"attributes": values}

    def logits(self, mel: Tensor) -> Tensor:
        """Map decibels ``[B, 128, N]`` to raw outputs ``[B, 7]``, as the published graph does."""
        image = self.head(self.blocks(self.stem(mel[:, None])))
        hidden = functional.gelu(self.trunk(self.norm(image.mean(dim=(2, 3)))))
        logits: Tensor = self.output(hidden)
        return logits
