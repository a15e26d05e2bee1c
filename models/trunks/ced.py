"""CED: a plain vision transformer over a mel spectrogram, distilled for AudioSet tagging.

transformers has no class for it, so the network is written out here under the published names.

References:
    Dinkel et al., CED: Consistent Ensemble Distillation for Audio Tagging (ICASSP 2024).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.checkpoints.cache import CheckpointError, load_tensors
from models.checkpoints.cards import ModelCard
from models.frontends import PowerMel
from models.precision import in_precision

_PATCH = 16
_HEAD_DIM = 64
_EPSILON = 1e-6


class CedMel(nn.Module):
    """CED's input: 64 HTK bands in dB, 100 frames per second, floored 120 dB below the maximum.

    References:
        torchaudio MelSpectrogram(16000, n_fft=512, win_length=512, hop_length=160, n_mels=64,
        center=True) and AmplitudeToDB(top_db=120), as in the published feature extractor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mel = PowerMel(16_000, n_fft=512, hop_length=160, n_mels=64, scale="htk")

    def forward(self, windows: Tensor) -> Tensor:
        """Map ``[B, T]`` at 16 kHz to ``[B, 64, 1 + T // 160]``; silence is -100."""
        mirrored = functional.pad(windows[:, None], (256, 256), mode="reflect")[:, 0]
        decibels: Tensor = 10 * torch.log10(self.mel(mirrored).clamp_min(1e-10))
        return torch.maximum(decibels, decibels.amax(dim=(1, 2), keepdim=True) - 120)


class _Attention(nn.Module):
    """Self-attention with a joint projection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.n_heads = max(1, width // _HEAD_DIM)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        b, n, d = tokens.shape
        joint = self.qkv(tokens).view(b, n, 3, self.n_heads, d // self.n_heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        output: Tensor = self.proj(mixed.transpose(1, 2).reshape(b, n, d))
        return output


class _Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.attn = _Attention(width)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp = nn.ModuleDict(
            {"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)}
        )

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        hidden = functional.gelu(self.mlp["fc1"](self.norm2(tokens)))
        output: Tensor = tokens + self.mlp["fc2"](hidden)
        return output


class _Encoder(nn.Module):
    """From decibels to tokens."""

    def __init__(self, n_mels: int, width: int, depth: int, n_columns: int) -> None:
        super().__init__()
        self.init_bn = nn.BatchNorm2d(n_mels)
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(1, width, _PATCH, _PATCH)})
        self.time_pos_embed = nn.Parameter(torch.zeros(1, width, 1, n_columns))
        self.freq_pos_embed = nn.Parameter(torch.zeros(1, width, n_mels // _PATCH, 1))
        self.blocks = nn.Sequential(*(_Block(width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, mel: Tensor) -> Tensor:
        """Map ``[B, F, N]`` to ``[B, tokens, D]``."""
        normed = self.init_bn(mel[..., None]).transpose(1, 3).transpose(2, 3)  # [B, 1, F, N]
        patches = self.patch_embed["proj"](normed)
        patches = patches + self.time_pos_embed[..., : patches.shape[-1]] + self.freq_pos_embed
        tokens: Tensor = self.norm(self.blocks(patches.flatten(2).transpose(1, 2)))
        return tokens


class Ced(nn.Module):
    """The whole network, front-end included; its size is read from the weights.

    Args:
        tensors: The published weights under their original names.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        n_mels = len(tensors["encoder.init_bn.weight"])
        n_tags, width = tensors["outputlayer.1.weight"].shape
        depth = sum(name.endswith(".attn.qkv.weight") for name in tensors)
        n_columns = tensors["encoder.time_pos_embed"].shape[-1]
        self.mel = CedMel()
        self.encoder = _Encoder(n_mels, width, depth, n_columns)
        self.outputlayer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, n_tags))
        self.load_state_dict(dict(tensors), strict=True)
        self.precision = torch.float32

    def compile_trunk(self, **options: Any) -> None:
        """See `TransformerNetwork`."""
        self.encoder.compile(**options)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Embed and tag windows.

        Args:
            windows: float32 ``[B, T]`` at 16 kHz, full scale ±1, at most 10.1 s.

        Returns:
            ``embedding``: float32 ``[B, D]``, the mean of the tokens. ``tags``: probabilities
            ``[B, K]``. Silence gives the network's answer to silence.
        """
        mel = self.mel(windows)
        with in_precision(mel, self.precision):
            mean = self.encoder(mel).mean(dim=1)
            logits = self.outputlayer(mean)
        return {"embedding": mean.float(), "tags": torch.sigmoid(logits.float())}


def build_ced(card: ModelCard, model_dir: Path) -> Ced:
    """Load CED.

    Raises:
        CheckpointError: It is not in the cache, does not match the card, or is not a CED network.
    """
    tensors = load_tensors(card, model_dir)
    try:
        return Ced(tensors)
    except (KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(card.model_id, card.source, f"not a CED network: {reason}") from error
