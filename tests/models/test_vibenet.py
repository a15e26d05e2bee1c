"""VibeNet compared with ONNX Runtime on the published graph."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from models.checkpoints.cards import ModelCard
from models.checkpoints.sources import SourceError, WrongFileError, fetch
from models.vibenet import ATTRIBUTES, Vibenet

Checkpoint = Callable[[str], dict[str, Tensor]]


@pytest.fixture(scope="module")
def network(checkpoint: Checkpoint) -> Vibenet:
    return Vibenet(checkpoint("vibenet")).eval()


@pytest.fixture(scope="module")
def published(cards: dict[str, ModelCard], tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        (path,) = fetch(cards["vibenet"], tmp_path_factory.mktemp("onnx"), None, sys.stdout.write)
    except WrongFileError:
        raise
    except SourceError as error:
        pytest.skip(f"the published graph cannot be had: {error}")
    return path


def windows(n: int, seconds: float = 4.0) -> Tensor:
    rng = np.random.default_rng(3)
    t = np.arange(int(seconds * 16_000)) / 16_000
    rows = [
        0.2 * np.sin(2 * np.pi * 110 * 2 ** (row / 3) * t) * np.exp(-3 * (t % 0.5))
        + 0.03 * row * rng.standard_normal(len(t))
        for row in range(n)
    ]
    return torch.from_numpy(np.array(rows, dtype=np.float32))


def test_logits_are_the_published_graphs_within_1e_4(network: Vibenet, published: Path) -> None:
    session = onnxruntime.InferenceSession(str(published))
    batch = windows(3)
    with torch.inference_mode():
        mel = network.mel(batch)
        logits = network.logits(mel)
    assert logits.shape == (3, len(ATTRIBUTES))
    for row, image in zip(logits, mel, strict=True):  # the published graph accepts one at a time
        (want,) = session.run(None, {"x": image[None].numpy()})
        np.testing.assert_allclose(row.numpy(), want[0], atol=1e-4)


def test_likelihoods_are_squashed_and_values_clipped(network: Vibenet) -> None:
    with torch.inference_mode():
        batch = windows(2)
        logits = network.logits(network.mel(batch))
        attributes = network(batch)["attributes"]
    for i, name in enumerate(ATTRIBUTES):
        squash = torch.sigmoid if name in ("acousticness", "instrumentalness", "liveness") else None
        want = squash(logits[:, i]) if squash else logits[:, i].clamp(0, 1)
        torch.testing.assert_close(attributes[:, i], want)


def test_a_row_of_a_batch_is_the_window_alone(network: Vibenet) -> None:
    batch = windows(3)
    with torch.inference_mode():
        together = network(batch)["attributes"]
        alone = torch.cat([network(window[None])["attributes"] for window in batch])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)
