"""Learning the embedding's projection: its input, its result, and what it ignores."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import yaml

from models.checkpoints.cache import load_tensors, pull
from models.checkpoints.cards import ModelCard
from models.projection import Projection
from pipelines.analysis.embedding import EmbeddingStep, load_trunks
from pipelines.training.embedding.alter import alter, at_speed, equalise, low_pass, with_noise
from pipelines.training.embedding.fit import export, fit
from pipelines.training.embedding.hear import (
    Track,
    blocks_of,
    hear,
    hear_package,
    load_evidence,
    tracks_of,
)
from pipelines.training.embedding.plan import EmbeddingPlan, parse_embedding_plan
from pipelines.training.plan import PlanError

REPOSITORY = Path(__file__).parents[3]
CONFIG = REPOSITORY / "configs" / "train_embedding.yaml"
DEMO = REPOSITORY / "serve_app" / "data" / "demo.mp3"
RATE = 44_100


@pytest.fixture
def plan() -> EmbeddingPlan:
    content = yaml.safe_load(CONFIG.read_text())
    return parse_embedding_plan(content | {"shortest_s": 5.0, "n_parts": 2, "part_s": 3.0})


@pytest.fixture(scope="module")
def step(cards: dict[str, ModelCard], model_dir: Path) -> EmbeddingStep:
    pull(cards["afa-embed-1"], model_dir)
    parts = cards["afa-embed-1"].parts
    return EmbeddingStep("", load_trunks(parts, model_dir, torch.device("cpu"), max_windows=1))


def cosines(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def nuisance(n_tracks: int, rng: np.random.Generator) -> np.ndarray:
    """Evidence ``[T, 4, 12]``: 4 values of the track, 4 stronger ones of the stretch, 4 unused."""
    track = np.repeat(rng.standard_normal((n_tracks, 1, 4)), 4, axis=1)
    blurred = track + 0.1 * rng.standard_normal(track.shape)
    stretch, unused = (size * rng.standard_normal(track.shape) for size in (5, 100))
    return np.concatenate([blurred, stretch, unused], axis=2)


def test_what_differs_within_a_track_is_turned_down_and_what_is_in_no_block_is_left_out() -> None:
    rng = np.random.default_rng(0)
    blocks = [np.arange(8)]
    projection = Projection(fit(nuisance(200, rng).astype(np.float32), blocks, ridge=0.01))
    tracks = nuisance(50, rng)
    vectors = np.stack(
        [
            projection([torch.from_numpy(row).float()]).numpy()
            for row in tracks[:, :2].reshape(-1, 12)
        ]
    )
    near = cosines(vectors)
    np.fill_diagonal(near, -1)
    partners = np.arange(100) ^ 1
    assert np.mean(near.argmax(axis=1) == partners) > 0.8
    plain = cosines(tracks[:, :2, :8].reshape(-1, 8))
    np.fill_diagonal(plain, -1)
    assert np.mean(plain.argmax(axis=1) == partners) < 0.5
    moved = torch.from_numpy(tracks[0, 0]).float()
    before = projection([moved]).clone()
    moved[8:] += 1000
    torch.testing.assert_close(projection([moved]), before)


def test_blocks_have_the_same_say_whatever_their_size() -> None:
    rng = np.random.default_rng(0)
    small, large = rng.standard_normal((300, 4, 2)), 50 * rng.standard_normal((300, 4, 30))
    tracks = np.concatenate([small, large], axis=2).astype(np.float32)
    tensors = fit(tracks, [np.arange(2), np.arange(2, 32)], ridge=1.0)
    projection = Projection(tensors)
    rows = torch.from_numpy(tracks[:, 0])
    energies = []
    for of_block in (slice(0, 2), slice(2, 32)):
        only = tensors["mean"].expand_as(rows).clone()
        only[:, of_block] = rows[:, of_block]
        energies.append(np.mean([float(projection([row]).square().sum()) for row in only]))
    assert energies[0] == pytest.approx(energies[1], rel=0.15)


def test_a_value_that_never_moved_does_not_take_over_when_it_does() -> None:
    rng = np.random.default_rng(0)
    tracks = rng.standard_normal((100, 4, 6)).astype(np.float32)
    tracks[..., 5] = 1e-9 * tracks[..., 5]
    scale = fit(tracks, [np.arange(6)], ridge=1.0)["scale"]
    assert float(scale[5]) == pytest.approx(100 * float(scale[:5].min()), rel=0.2)


def test_the_shipped_projection_has_what_its_networks_say(
    cards: dict[str, ModelCard], model_dir: Path
) -> None:
    card = cards["afa-embed-1"]
    pull(card, model_dir)
    tensors = load_tensors(card, model_dir)
    n = sum(part.outputs["embedding"] + part.outputs["tags"] for part in card.parts)
    assert tensors["mean"].shape == tensors["scale"].shape == (n,)
    assert tensors["matrix"].shape == (768, n)
    blocks = blocks_of(card.parts, model_dir)
    assert [len(block) for block in blocks[:2]] == [753, 384]
    used = np.flatnonzero(tensors["scale"].numpy())
    assert used.tolist() == sorted(np.concatenate(blocks).tolist())
    assert not tensors["matrix"][:, tensors["scale"] == 0].any()
    assert torch.linalg.matrix_rank(tensors["matrix"].float()) == 768


def test_a_track_is_heard_the_same_every_time_and_its_stretches_differ(
    step: EmbeddingStep, plan: EmbeddingPlan
) -> None:
    rows = hear(Track("demo", DEMO, "demo-1"), step, plan)
    assert rows is not None
    assert rows.shape == (2, 753 + 50 + 384 + 527)
    again = hear(Track("demo", DEMO, "demo-1"), step, plan)
    assert again is not None
    np.testing.assert_allclose(again, rows, atol=1e-4)
    assert np.abs(rows[0] - rows[1]).max() > 0.1


def test_what_is_no_music_is_left_out_and_what_was_heard_is_kept(
    step: EmbeddingStep, plan: EmbeddingPlan, tmp_path: Path
) -> None:
    music, folder = tmp_path / "music", tmp_path / "evidence"
    music.mkdir()
    folder.mkdir()
    (music / "track.mp3").write_bytes(DEMO.read_bytes())
    (music / "copy").mkdir()
    (music / "copy" / "track.mp3").write_bytes(DEMO.read_bytes())
    (music / "broken.ogg").write_bytes(b"no sound")
    (music / "readme.txt").write_text("no sound either")
    tracks = tracks_of("package", music, plan.seed)
    assert sorted(track.path.name for track in tracks) == ["broken.ogg", "track.mp3"]
    told: list[Track] = []
    hear_package(tracks, step, plan, folder, told.append)
    assert [track.path.name for track in told] == ["track.mp3"]
    (key,) = load_evidence(folder)
    kept = folder / f"{key}.npy"
    np.save(kept, np.zeros((2, 3)))
    hear_package(tracks, step, plan, folder, told.append)
    assert load_evidence(folder)[key].shape == (2, 3)  # not analysed again


def test_the_export_is_whole(tmp_path: Path) -> None:
    tensors = fit(np.random.default_rng(0).random((20, 3, 5), np.float32), [np.arange(5)], 1.0)
    export(tensors, tmp_path / "out" / "weights.safetensors", {"training": "test"})
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["weights.safetensors"]


def sweep() -> np.ndarray:
    t = np.arange(2 * RATE) / RATE
    return (0.3 * np.sin(2 * np.pi * (100 + 4000 * t) * t)).astype(np.float32)


def share_above(samples: np.ndarray, hz: float) -> float:
    power = np.abs(np.fft.rfft(samples)) ** 2
    return float(power[np.fft.rfftfreq(len(samples), 1 / RATE) > hz].sum() / power.sum())


def test_alterations_do_what_they_say() -> None:
    samples = sweep()
    assert len(at_speed(samples, 1.04)) == pytest.approx(len(samples) / 1.04, abs=4)
    assert share_above(samples, 5000) > 0.5
    assert share_above(low_pass(samples, 4000), 5000) < 0.01
    noise = with_noise(samples, 20, Random(0)) - samples
    assert 10 * np.log10(np.mean(samples**2) / np.mean(noise**2)) == pytest.approx(20, abs=0.1)
    tone = np.abs(np.fft.rfft(equalise(samples, Random(1)))) / np.abs(np.fft.rfft(samples))
    in_band = tone[2000:12_000]
    assert in_band.max() / in_band.min() > 1.2


@pytest.mark.parametrize("seed", range(8))
def test_an_altered_recording_is_sound_of_about_its_length(seed: int) -> None:
    altered = alter(sweep(), Random(seed))
    assert altered.dtype == np.float32
    assert np.isfinite(altered).all()
    assert len(altered) == pytest.approx(2 * RATE, rel=0.05)
    np.testing.assert_array_equal(altered, alter(sweep(), Random(seed)))


def drop_ridge(content: dict[str, object]) -> None:
    del content["ridge"]


@pytest.mark.parametrize(
    "change", [drop_ridge, lambda content: content.update(speed=3)], ids=["missing", "unknown"]
)
def test_a_plan_that_is_not_one_is_refused(change: Callable[[dict[str, object]], None]) -> None:
    content = yaml.safe_load(CONFIG.read_text())
    change(content)
    with pytest.raises(PlanError, match="EmbeddingPlan: missing"):
        parse_embedding_plan(content)
