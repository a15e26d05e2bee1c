"""One trunk for mood and embedding, with a small random AST checkpoint of AudioSet's size."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from models.checkpoints.cache import pull
from models.checkpoints.cards import CardFile, ModelCard, choose_cards
from models.checkpoints.sources import file_sha256
from pipelines.analysis import embedding, mood_and_embedding
from pipelines.analysis.mood_and_embedding import MoodAndEmbeddingStep
from pipelines.analysis.networks.checkpoint_model import CheckpointModel
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import run_local
from tests.data.small_checkpoints import WINDOW, write_ast

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def small(
    cards: dict[str, ModelCard], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, tuple[ModelCard, ...]], Path]:
    """Choose a small AST for embedding and tags, and the mapping for attributes."""
    folder = tmp_path_factory.mktemp("ast")
    write_ast(folder, seed=1)
    names = ("config.json", "model.safetensors")
    card = replace(
        cards["ast-audioset"],
        source=f"file://{folder}",
        files=tuple(CardFile(name, file_sha256(folder / name)) for name in names),
        window_length=WINDOW,
        window_hop=128 * 160,
    )
    model_dir = tmp_path_factory.mktemp("cache")
    pull(card, model_dir)
    everything = {**cards, "ast-audioset": card}
    wanted = {"embedding": "ast-audioset", "tags": "ast-audioset"}
    return choose_cards(everything, "permissive", wanted), model_dir


def noise(seconds: float = 5.0) -> Waveform:
    rng = np.random.default_rng(0)
    return Waveform(0.1 * rng.standard_normal((2, int(44_100 * seconds))).astype(np.float32))


def count_windows(model: CheckpointModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of windows of every forward."""
    windows: list[int] = []
    forward = model.forward

    def counted(batch: Tensor) -> Mapping[str, Tensor]:
        windows.append(len(batch))
        return forward(batch)

    monkeypatch.setattr(model, "forward", counted)
    return windows


def test_half_precision_says_the_same(
    small: tuple[dict[str, tuple[ModelCard, ...]], Path],
) -> None:
    step = mood_and_embedding.build(*small, CPU)
    mood_result, vector = run_local(step, noise())
    halves = Waveform(noise().samples.astype(np.float16))
    half_mood, half_vector = run_local(step, halves)
    np.testing.assert_allclose(half_vector.vector, vector.vector, atol=1e-3)
    assert half_mood.energy == pytest.approx(mood_result.energy, abs=1e-3)


def test_a_shared_trunk_is_run_once(
    small: tuple[dict[str, tuple[ModelCard, ...]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = mood_and_embedding.build(*small, CPU)
    (model,) = step.models
    windows = count_windows(model, monkeypatch)
    mood_result, vector = run_local(step, noise(), batch_windows=2)
    assert windows == [2, 2]  # 5 s are 4 windows of 1.3 s
    assert mood_result.models == {"attributes": "musicnn-attributes", "tags": "ast-audioset"}
    assert vector.models == {"embedding": "ast-audioset"}
    assert mood_result.tags == vector.tags
    assert np.linalg.norm(vector.vector) == pytest.approx(1, abs=1e-6)


def test_a_network_of_the_default_embedding_that_tags_too_is_run_once(
    cards: dict[str, ModelCard], model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(cards["afa-embed-1"], model_dir)
    chosen = choose_cards(cards, "permissive", {"tags": "efficientat-mn04"})
    step = mood_and_embedding.build(chosen, model_dir, CPU)
    assert [model.model_id for model in step.models] == ["efficientat-mn04", "musicnn-msd-768"]
    windows = count_windows(step.models[0], monkeypatch)
    mood_result, vector = run_local(step, noise(12.0))
    assert windows == [2]
    assert mood_result.models["tags"] == "efficientat-mn04"
    assert vector.models == {"embedding": "afa-embed-1"}


def test_sharing_changes_no_answer(small: tuple[dict[str, tuple[ModelCard, ...]], Path]) -> None:
    _, together = run_local(mood_and_embedding.build(*small, CPU), noise())
    alone = run_local(embedding.build(*small, CPU), noise())
    np.testing.assert_allclose(together.vector, alone.vector, atol=1e-6)


def test_silence_runs_nothing(small: tuple[dict[str, tuple[ModelCard, ...]], Path]) -> None:
    step: MoodAndEmbeddingStep = mood_and_embedding.build(*small, CPU)
    silence = Waveform(np.zeros((1, 44_100), np.float32))
    assert step.prepare(Track.of(silence)).windows == {}
    mood_result, vector = run_local(step, silence)
    assert mood_result.energy == 0.0
    assert not any(vector.vector)


async def test_many_tracks_share_batches_and_every_window_is_run_once(
    small: tuple[dict[str, tuple[ModelCard, ...]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = mood_and_embedding.build(*small, CPU)
    (model,) = step.models
    windows = count_windows(model, monkeypatch)
    batched = BatchedStep(step, CPU, max_windows=8)
    results = await asyncio.gather(*(batched.run(noise()) for _ in range(3)))
    assert sum(windows) == 3 * 4
    assert batched.weight_bytes == sum(p.nbytes for p in model.network.parameters())
    batched.close()
    for mood_result, vector in results:
        assert mood_result.tags == vector.tags
        np.testing.assert_allclose(vector.vector, results[0][1].vector, atol=1e-6)
