"""CLAP: embeddings of audio and of text in one space.

References:
    Wu et al., Large-Scale Contrastive Language-Audio Pretraining with Feature Fusion and
    Keyword-to-Caption Augmentation (ICASSP 2023).
"""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    ClapAudioConfig,
    ClapAudioModelWithProjection,
    ClapTextConfig,
    ClapTextModelWithProjection,
)

from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import TOKENIZER, ModelCard, UnreadableTextError
from models.checkpoints.pretrained import known_fields, load_pretrained, read_config
from models.frontends import PowerMel
from models.precision import in_precision

MOST_TOKENS = 77
"""Tokens in a text; CLAP was trained on this many, and longer texts are truncated."""


OTHER_TOKENIZER = "Put the tokenizer that this network was trained with into its card."


class ClapMel(nn.Module):
    """CLAP's input: 64 Slaney bands from 50 Hz to 14 kHz in decibels, 100 frames a second.

    References:
        transformers.ClapFeatureExtractor with the settings of the unfused checkpoint.
    """

    def __init__(self, n_mels: int = 64) -> None:
        super().__init__()
        self.mel = PowerMel(
            48_000, n_fft=1024, hop_length=480, n_mels=n_mels, f_min=50.0, f_max=14_000.0
        )

    def forward(self, windows: Tensor) -> Tensor:
        """Map ``[B, T]`` at 48 kHz to ``[B, 1, 1 + T // 480, 64]``; silence is -100.

        Frames are centred on multiples of the hop and the ends mirrored, as in training; only the
        window itself is used.
        """
        mirrored = functional.pad(windows[:, None], (512, 512), mode="reflect")[:, 0]
        decibels: Tensor = 10 * torch.log10(self.mel(mirrored).clamp_min(1e-10))
        return decibels.transpose(1, 2)[:, None]


class Clap(nn.Module):
    """The audio half of CLAP with its front-end.

    Args:
        trunk: The audio tower with its projection.
        n_mels: Bands of the front-end.
        is_joint: Whether its embedding is the projection, so that text can be compared with it.
    """

    def __init__(
        self, trunk: ClapAudioModelWithProjection, n_mels: int, *, is_joint: bool = False
    ) -> None:
        super().__init__()
        self.is_joint = is_joint
        self.mel = ClapMel(n_mels)
        self.trunk = trunk
        self.precision = torch.float32

    def compile_trunk(self, **options: Any) -> None:
        """See `TransformerNetwork`."""
        self.trunk.audio_model.compile(**options)

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        """Embed windows.

        Args:
            windows: float32 ``[B, T]`` at 48 kHz, full scale ±1, of exactly the card's length.

        Returns:
            ``embedding``: float32 ``[B, D]``, the pooled features, or the projection.
            ``projection``: ``[B, P]`` in the space of the text tower, with L2 norm 1. Silence gives
            the network's answer to silence.
        """
        mel = self.mel(windows)
        with in_precision(mel, self.precision):
            pooled = self.trunk.audio_model(input_features=mel).pooler_output
            projection = self.trunk.audio_projection(pooled)
        projection = functional.normalize(projection.float(), dim=-1)
        embedding = projection if self.is_joint else pooled.float()
        return {"embedding": embedding, "projection": projection}


def build_clap(card: ModelCard, model_dir: Path) -> Clap:
    """Load the audio tower of an unfused CLAP checkpoint; the text tower stays on disk.

    Raises:
        CheckpointError: It is not in the cache, does not match the card, or is incomplete.
    """
    fields: dict[str, Any] = read_config(card, model_dir)
    audio = known_fields(fields.get("audio_config", fields), ClapAudioConfig)
    config = ClapAudioConfig(**audio)
    trunk = load_pretrained(ClapAudioModelWithProjection, config, card, model_dir)
    return Clap(trunk, config.num_mel_bins, is_joint=card.network == "clap-joint")


class ClapText:
    """The text half of CLAP with its tokenizer.

    Args:
        trunk: The text tower with its projection.
        tokenizer: Turns text into the token ids that the tower was trained with.
    """

    def __init__(self, trunk: ClapTextModelWithProjection, tokenizer: Tokenizer) -> None:
        self._trunk: nn.Module = nn.Module.eval(trunk).requires_grad_(False)
        self._tokenizer = tokenizer
        self._tokenizer.no_padding()  # it would be read as part of the text
        config = trunk.config
        n_positions = config.max_position_embeddings - (config.pad_token_id or 0) - 1
        self._tokenizer.enable_truncation(min(MOST_TOKENS, n_positions))

    def __call__(self, text: str) -> Tensor:
        """Map text to float32 ``[P]``, in the space of `Clap`'s projection, with L2 norm 1.

        Raises:
            UnreadableTextError: The tokenizer has no token for a word of it, or for all of it.
        """
        try:
            ids = self._tokenizer.encode(text).ids
        except Exception as error:  # tokenizers raises no other class
            raise UnreadableTextError(str(error)) from error
        if not ids:
            raise UnreadableTextError("nothing is left of it")
        with torch.inference_mode():
            embeds = self._trunk(input_ids=torch.tensor([ids])).text_embeds
        return functional.normalize(embeds[0].float(), dim=-1)


def build_clap_text(card: ModelCard, model_dir: Path) -> ClapText:
    """Load the text tower of a CLAP checkpoint, on the CPU; the audio tower stays on disk.

    Raises:
        CheckpointError: It is not in the cache, does not match the card, is incomplete, or has the
            tokenizer of another network.
    """
    text = known_fields(read_config(card, model_dir).get("text_config", {}), ClapTextConfig)
    config = ClapTextConfig(**text)
    trunk = load_pretrained(ClapTextModelWithProjection, config, card, model_dir)
    try:
        tokenizer = Tokenizer.from_file(str(model_dir / card.model_id / TOKENIZER))
    except Exception as error:  # tokenizers raises no other class
        reason = f"{TOKENIZER} is not a tokenizer: {error}"
        raise CheckpointError(card.model_id, card.source, reason, OTHER_TOKENIZER) from error
    if max(tokenizer.get_vocab().values(), default=0) >= config.vocab_size:
        reason = f"{TOKENIZER} has more tokens than the network, which knows {config.vocab_size}"
        raise CheckpointError(card.model_id, card.source, reason, OTHER_TOKENIZER)
    return ClapText(trunk, tokenizer)
