"""The embedding step with the real default checkpoints, and with a single network."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoints.cache import load_tensors, pull
from models.checkpoints.cards import ModelCard, choose_cards
from models.networks import build_network
from models.projection import Projection, evidence_of
from pipelines.analysis import embedding
from pipelines.analysis.embedding import EmbeddingStep, unit_vector
from pipelines.analysis.records import EMBEDDING_DIMENSION
from pipelines.audio.gain import measure_gain
from pipelines.audio.resample import mono_at
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def step(cards: dict[str, ModelCard], model_dir: Path) -> EmbeddingStep:
    pull(cards["afa-embed-1"], model_dir)
    return embedding.build(choose_cards(cards), model_dir, CPU)


@pytest.fixture(scope="module")
def single(cards: dict[str, ModelCard], model_dir: Path) -> EmbeddingStep:
    pull(cards["musicnn-msd-768"], model_dir)
    chosen = choose_cards(cards, "any", {"embedding": "musicnn-msd-768"})
    return embedding.build(chosen, model_dir, CPU)


def melody(seconds: float, seed: int = 0, sample_rate: int = 44_100) -> Waveform:
    """Plucked notes of a random pentatonic tune."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * sample_rate)) / sample_rate
    step = (t / 0.3).astype(int)
    notes = 220 * 2 ** (rng.choice([0, 2, 4, 7, 9, 12], step.max() + 1) / 12)
    phase = 2 * np.pi * np.cumsum(notes[step]) / sample_rate
    return Waveform((0.3 * np.sin(phase) * np.exp(-5 * (t % 0.3)))[None].astype(np.float32))


def test_the_vector_of_one_network_is_the_padded_mean_of_its_windows(
    single: EmbeddingStep, cards: dict[str, ModelCard], model_dir: Path
) -> None:
    track = melody(10.0, sample_rate=16_000)
    track = Waveform(track.samples, 16_000)
    result = run_local(single, track)
    network = build_network(cards["musicnn-msd-768"], model_dir)
    starts = [0, 47_872, 95_744, 160_000 - 48_128]
    gain = measure_gain(torch.from_numpy(track.samples[0]), 16_000)
    assert gain is not None
    patches = gain * torch.from_numpy(np.stack([track.samples[0, s : s + 48_128] for s in starts]))
    with torch.inference_mode():
        mean = network(patches)["embedding"].mean(dim=0).double()
    want = (mean / mean.norm()).numpy()
    np.testing.assert_allclose(result.vector[:753], want, atol=1e-5)
    assert result.vector[753:] == [0.0] * (EMBEDDING_DIMENSION - 753)
    assert result.models == {"embedding": "musicnn-msd-768"}


def test_the_default_projects_what_both_networks_say(
    step: EmbeddingStep, cards: dict[str, ModelCard], model_dir: Path
) -> None:
    card = cards["afa-embed-1"]
    track = melody(10.0)
    result = run_local(step, track)
    level = measure_gain(torch.from_numpy(mono_at(track, 16_000)), 16_000)
    assert level is not None
    evidence = []
    for part, length, starts in zip(
        card.parts, (48_128, 320_000), ([0, 47_872, 95_744, 160_000 - 48_128], [0]), strict=True
    ):
        samples = level * mono_at(track, part.sample_rate)
        windows = torch.from_numpy(np.stack([samples[s : s + length] for s in starts]))
        with torch.inference_mode():
            evidence.append(evidence_of(build_network(part, model_dir).eval()(windows.float())))
    want = Projection(load_tensors(card, model_dir))(evidence)
    assert want.shape == (EMBEDDING_DIMENSION,)
    np.testing.assert_allclose(result.vector, want / want.norm(), atol=1e-4)
    assert result.models == {"embedding": "afa-embed-1"}
    assert result.vector != pytest.approx(run_local(step, melody(10.0, seed=1)).vector, abs=1e-3)


def test_it_has_norm_one_and_tags(step: EmbeddingStep) -> None:
    result = run_local(step, melody(6.0))
    assert len(result.vector) == EMBEDDING_DIMENSION
    assert np.linalg.norm(result.vector) == pytest.approx(1, abs=1e-6)
    assert result.tags
    assert all(0.5 <= tag.score <= 1 for tag in result.tags)


def test_the_level_of_a_track_does_not_move_it(step: EmbeddingStep) -> None:
    track = melody(6.0)
    loud = run_local(step, track).vector
    quiet = run_local(step, Waveform(track.samples * np.float32(0.1))).vector
    assert np.dot(loud, quiet) >= 0.9999


def test_it_does_not_depend_on_the_batch(step: EmbeddingStep) -> None:
    one = run_local(step, melody(12.0), batch_windows=1).vector
    many = run_local(step, melody(12.0), batch_windows=16).vector
    assert np.dot(one, many) >= 0.9999


def test_a_part_of_a_track_is_nearer_to_it_than_another_sound(step: EmbeddingStep) -> None:
    noise = np.random.default_rng(2).standard_normal((1, 44_100 * 6)).astype(np.float32)
    whole = run_local(step, melody(12.0)).vector
    part = run_local(step, Waveform(melody(12.0).samples[:, : 44_100 * 6])).vector
    other = run_local(step, Waveform(0.1 * noise)).vector
    assert np.dot(whole, part) > np.dot(whole, other) + 0.5


def test_silence_gives_zeros(step: EmbeddingStep) -> None:
    result = run_local(step, Waveform(np.zeros((1, 44_100), np.float32)))
    assert result.vector == [0.0] * EMBEDDING_DIMENSION
    assert result.tags == []


def test_padding_keeps_the_geometry() -> None:
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])
    assert float(unit_vector(a) @ unit_vector(b)) == pytest.approx(0.96)
    assert not unit_vector(torch.zeros(5)).any()
