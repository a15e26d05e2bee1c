"""Small random checkpoints of hub models, as an operator would add them: files, and a card."""

from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import ASTConfig, ASTForAudioClassification

from models.checkpoints.sources import file_sha256

WINDOW = 127 * 160 + 400
"""Samples of 128 frames."""


def write_ast(folder: Path, seed: int) -> None:
    """Write an AST with AudioSet's outputs and width, but one layer and 1.3 s windows."""
    torch.manual_seed(seed)
    config = ASTConfig(
        hidden_size=768,
        num_hidden_layers=1,
        intermediate_size=64,
        max_length=128,
    )
    config.num_labels = 527
    ASTForAudioClassification(config).save_pretrained(folder)


def ast_card(folder: Path) -> dict[str, Any]:
    """Describe it as `configs/models.yaml` would."""
    names = ("config.json", "model.safetensors")
    return {
        "role": "embedding",
        "network": "ast",
        "source": f"file://{folder}",
        "format": "safetensors",
        "files": [{"path": name, "sha256": file_sha256(folder / name)} for name in names],
        "licence": "Apache-2.0",
        "licence_class": "permissive",
        "commercial_use": True,
        "attribution": "random weights",
        "sample_rate": 16_000,
        "front_end": "Kaldi filter bank, 128 bands, 128 frames",
        "window": {"length": WINDOW, "hop": 128 * 160},
        "outputs": {"tags": 527, "embedding": 768},
    }


def add_own_ast(model_dir: Path, folder: Path, *model_ids: str) -> None:
    """Write a checkpoint for each id, and the operator's file of cards in the model folder."""
    cards = {}
    for seed, model_id in enumerate(model_ids):
        write_ast(folder / model_id, seed)
        cards[model_id] = ast_card(folder / model_id)
    (model_dir / "cards.yaml").write_text(yaml.safe_dump(cards))
