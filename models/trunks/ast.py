"""Audio spectrogram transformers: AST on AudioSet, and MAEST on Discogs styles.

References:
    Gong et al., AST: Audio Spectrogram Transformer (Interspeech 2021); Alonso-Jiménez et al.,
    Efficient Supervised Training of Audio Transformers for Music Representation Learning (ISMIR
    2023).
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import ASTConfig, ASTForAudioClassification

from models.checkpoints.cards import ModelCard
from models.checkpoints.pretrained import known_fields, load_pretrained, read_config
from models.frontends import KaldiFbank, MusicnnMel
from models.precision import in_precision

AUDIOSET_MEAN, AUDIOSET_STD = -4.2677393, 4.5689974  # AST's preprocessor_config.json
DISCOGS_MEAN, DISCOGS_STD = 2.06755686098554, 1.268292820667291  # MAEST's preprocessor_config.json


class _FramesFirst(nn.Module):
    """musicnn's mel bands, frames first; MAEST was trained on the same features."""

    def __init__(self) -> None:
        super().__init__()
        self.mel = MusicnnMel()

    def forward(self, windows: Tensor) -> Tensor:
        frames: Tensor = self.mel(windows).transpose(1, 2)
        return frames


class AstTrunk(ASTForAudioClassification):  # type: ignore[no-untyped-call]
    """The transformer without an attention mask.

    transformers adds one when torch 2.11 compiles it, and any mask rules out flash attention.
    """

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map ``[B, N, F]`` to the mean of two tokens ``[B, D]``, and logits ``[B, K]``."""
        network = self.audio_spectrogram_transformer
        hidden = network.embeddings(features)
        for layer in network.layers:
            hidden = layer(hidden)
        pooled = network.layernorm(hidden)[:, :2].mean(dim=1)
        return pooled, self.classifier(pooled)


class AudioTransformer(nn.Module):
    """A spectrogram transformer with its front-end: one forward gives embedding and tags.

    Args:
        trunk: The transformer.
        front_end: Maps windows ``[B, T]`` to features ``[B, N, F]``, where N is the trunk's length.
        mean: Mean of the training features.
        std: Standard deviation of the training features; features are divided by twice this.
    """

    def __init__(self, trunk: AstTrunk, front_end: nn.Module, mean: float, std: float) -> None:
        super().__init__()
        self.trunk = trunk
        self.front_end = front_end
        self.mean, self.std = mean, std
        self.precision = torch.float32

    def compile_trunk(self, **options: Any) -> None:
        """See `TransformerNetwork`."""
        self.trunk.compile(**options)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Embed and tag windows.

        Args:
            windows: float32 ``[B, T]``, full scale ±1, of exactly the card's length.

        Returns:
            ``embedding``: float32 ``[B, D]``, the mean of the class and the distillation token.
            ``tags``: probabilities ``[B, K]``. Silence gives the network's answer to silence.
        """
        features = (self.front_end(windows) - self.mean) / (2 * self.std)
        with in_precision(features, self.precision):
            pooled, logits = self.trunk(features)
        return {"embedding": pooled.float(), "tags": torch.sigmoid(logits.float())}


def build_ast(card: ModelCard, model_dir: Path) -> AudioTransformer:
    """Load AST: 128 Kaldi bands, 1024 frames.

    Raises:
        CheckpointError: It is not in the cache, does not match the card, or is incomplete.
    """
    config = _config(card, model_dir)
    front_end = KaldiFbank(card.sample_rate, config.num_mel_bins)
    trunk = load_pretrained(AstTrunk, config, card, model_dir)
    return AudioTransformer(trunk, front_end, AUDIOSET_MEAN, AUDIOSET_STD)


def build_maest(card: ModelCard, model_dir: Path) -> AudioTransformer:
    """Load MAEST: 96 bands, 1876 frames of 16 ms; errors as in `build_ast`."""
    config = _config(card, model_dir)
    trunk = load_pretrained(AstTrunk, config, card, model_dir)
    return AudioTransformer(trunk, _FramesFirst(), DISCOGS_MEAN, DISCOGS_STD)


def _config(card: ModelCard, model_dir: Path) -> ASTConfig:
    fields: dict[str, Any] = known_fields(read_config(card, model_dir), ASTConfig)
    if "id2label" not in fields:
        fields["num_labels"] = card.outputs["tags"]
    return ASTConfig(**fields)
