"""MERT: self-supervised music embeddings, run by transformers' own HuBERT class.

The published configuration of the 95M model switches off every extension of MERT, so it is plain
HuBERT at 24 kHz, and no remote code is needed.

References:
    Li et al., MERT: Acoustic Music Understanding Model with Large-Scale Self-supervised Training
    (2023).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import HubertConfig, HubertModel

from models.checkpoints.cache import CheckpointError, load_tensors
from models.checkpoints.cards import ModelCard
from models.checkpoints.pretrained import known_fields, read_config
from models.precision import in_precision
from models.trunks.convolutions import FeatureEncoder, FourierConvolution

# Settings that would make the network differ from HuBERT, and the values that switch them off.
_EXTENSIONS = {"feature_extractor_cqt": False, "attention_relax": -1, "deepnorm": False}

# Weight norm's two tensors, lengths and directions, before and after torch's parametrizations.
_WEIGHT_NORMS = (
    ("weight_g", "weight_v"),
    ("parametrizations.weight.original0", "parametrizations.weight.original1"),
)
_POSITIONAL = "encoder.pos_conv_embed.conv."


class MertTrunk(HubertModel):  # type: ignore[no-untyped-call]
    """HuBERT that returns the mean of its layers over time, adding each as it is computed.

    So no layer has to be kept: the 13 of a batch of 64 windows take 1 GB. Weight norm is folded.
    """

    def __init__(self, config: HubertConfig) -> None:
        super().__init__(config)
        self.feature_extractor = cast("Any", FeatureEncoder(self.feature_extractor))
        positional: nn.Module = self.encoder.pos_conv_embed
        positional.conv = FourierConvolution(cast("nn.Conv1d", positional.conv))

    def forward(self, samples: Tensor) -> Tensor:
        """Map float32 ``[B, T]`` to ``[B, D]``, including the input of the first layer."""
        encoder = self.encoder
        hidden = self.feature_projection(self.feature_extractor(samples))
        hidden = hidden + encoder.pos_conv_embed(hidden)
        if not self.config.do_stable_layer_norm:
            hidden = encoder.layer_norm(hidden)
        total = hidden.float().mean(dim=1)
        for layer in encoder.layers:
            hidden = layer(hidden)
            total = total + hidden.float().mean(dim=1)
        mean: Tensor = total / (1 + len(encoder.layers))
        return mean


class Mert(nn.Module):
    """HuBERT over zero-mean, unit-variance samples; the mean of all its layers over time.

    Args:
        trunk: The network.
    """

    def __init__(self, trunk: MertTrunk) -> None:
        super().__init__()
        self.trunk = trunk
        self.precision = torch.float32

    def compile_trunk(self, **options: Any) -> None:
        """See `TransformerNetwork`."""
        self.trunk.compile(**options)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Embed windows.

        Args:
            windows: float32 ``[B, T]`` at 24 kHz, full scale ±1; level does not matter. All of one
                length: padding would leak through the group norm.

        Returns:
            ``embedding``: float32 ``[B, D]``, the mean over time and over the layers, including the
            input of the first. Silence gives the network's answer to silence.
        """
        centred = windows - windows.mean(dim=-1, keepdim=True)
        # As Wav2Vec2FeatureExtractor does, including its small constant.
        scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-7).sqrt()
        with in_precision(scaled, self.precision):
            return {"embedding": self.trunk(scaled)}


def build_mert(card: ModelCard, model_dir: Path) -> Mert:
    """Load MERT.

    Raises:
        CheckpointError: It is not in the cache, does not match the card, is incomplete, or is a
            MERT with extensions that HuBERT lacks.
    """
    fields = read_config(card, model_dir)
    for name, off in _EXTENSIONS.items():
        if fields.get(name, off) != off:
            raise CheckpointError(card.model_id, card.source, f"{name} is not supported")
    config = HubertConfig(**known_fields(fields, HubertConfig))
    tensors = fold_weight_norm(load_tensors(card, model_dir))
    trunk = MertTrunk(config)
    absent = trunk.load_state_dict(tensors, strict=False).missing_keys
    if absent:
        raise CheckpointError(card.model_id, card.source, f"lacks {', '.join(absent[:3])}")
    return Mert(trunk)


def fold_weight_norm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return HuBERT's tensors with the weight norm of its positional convolution multiplied out."""
    folded = dict(tensors)
    for of_lengths, of_directions in _WEIGHT_NORMS:
        names = _POSITIONAL + of_lengths, _POSITIONAL + of_directions
        if all(name in folded for name in names):
            lengths, directions = (folded.pop(name) for name in names)
            weight = torch._weight_norm(directions, lengths, dim=2)
            folded[_POSITIONAL + "weight"] = weight
    return folded
