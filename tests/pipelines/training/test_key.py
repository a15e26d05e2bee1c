from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from configs.tables import load_table
from models.tonality.keynet import KeyNetwork
from pipelines.training.cycle import CyclePlan, parse_run, split_clips, write
from pipelines.training.key.augmentation import augment, transposed
from pipelines.training.key.clips import NO_BASS, KeyClip, measure
from pipelines.training.key.fit import (
    KeyTrainer,
    draw_batch,
    key_targets,
    score_clips,
)
from pipelines.training.music.performance import Performance
from pipelines.training.music.score import DRUMS, Note


@pytest.fixture
def plan() -> CyclePlan:
    shipped = parse_run(load_table("train_key")).fit
    return replace(shipped, steps=2, batch=2, segment_frames=8)


def clip(key: int) -> KeyClip:
    """A major triad on the key over its root."""
    bands = np.full((20, 180), 0.1, dtype=np.float16)
    pitches = np.zeros((20, 12), dtype=np.uint8)
    for tone in (key, key + 4, key + 7):
        pitches[:, tone % 12] = 1
        bands[:, [3 * (tone % 12) + 36 * octave + 1 for octave in range(1, 4)]] = 8.0
    return KeyClip(bands, pitches, np.full(20, key % 12, dtype=np.int8), key)


def test_notes_become_pitches_and_bass_at_the_tapes_speed() -> None:
    notes = [Note(0.0, 4.0, 0, 69, 90), Note(2.0, 4.0, 1, 38, 90), Note(0.0, 4.0, DRUMS, 36, 90)]
    performance = Performance(notes, np.zeros(0), np.zeros(0))
    t = np.arange(6 * 22_050) / 22_050
    found = measure(np.sin(2 * np.pi * 440 * t).astype(np.float32), performance, 2, 11)
    assert found.key == 11
    sounding = [set(np.flatnonzero(row)) for row in found.pitches]
    # A and D, two semitones up and as much sooner.
    assert sounding[:4] == [{11}] * 4
    assert sounding[7] == {4, 11}
    assert not any(sounding[-3:])
    assert found.bass[2] == NO_BASS
    assert found.bass[7] == 4
    assert int(found.bands.astype(float).mean(0).argmax()) == pytest.approx(106, abs=1)


def test_bands_move_by_parts_of_one() -> None:
    rng = np.random.default_rng(0)
    bands = np.zeros((2, 180), dtype=np.float32)
    bands[:, 50] = 1.0
    assert transposed(bands, 3.0, rng)[0, 53] == 1.0
    assert transposed(bands, -4.25, rng)[0, [45, 46]] == pytest.approx([0.25, 0.75])


def test_a_segment_and_its_truth_move_together(plan: CyclePlan) -> None:
    batch = draw_batch([clip(0), clip(5)], replace(plan, batch=32), 0)
    for pitches, bass, key in zip(batch.pitches, batch.bass, batch.keys.tolist(), strict=True):
        assert set(pitches[0].nonzero().flatten().tolist()) == {key, (key + 4) % 12, (key + 7) % 12}
        assert set(bass.tolist()) == {key}
    assert torch.equal(
        batch.bands, draw_batch([clip(0), clip(5)], replace(plan, batch=32), 0).bands
    )
    assert len(set(batch.keys.tolist())) > 8


def test_augmented_bands_keep_their_scale() -> None:
    rng = np.random.default_rng(1)
    music = np.abs(rng.normal(size=(16, 180))).astype(np.float32)
    for _ in range(40):
        altered = augment(music, music, rng)
        assert np.isfinite(altered).all()
        assert altered.min() >= 0
        assert altered.mean() == pytest.approx(1, abs=1e-3)


def test_targets_are_distributions_around_the_key() -> None:
    targets = key_targets()
    assert targets.sum(1).tolist() == pytest.approx([1.0] * 24)
    # C major's relative is A minor, A minor's C major.
    assert targets[0, 21] == targets[21, 0] == pytest.approx(0.04)


def test_a_run_is_trained_scored_and_written(plan: CyclePlan, tmp_path: Path) -> None:
    losses: list[float] = []
    network = KeyTrainer(plan, [clip(0), clip(7)]).run(lambda _, loss: losses.append(loss))
    assert len(losses) == 2
    assert 0 <= score_clips(network, [clip(3)]) <= 1
    write(network, tmp_path / "key.safetensors")
    read = KeyNetwork.from_tensors(load_file(tmp_path / "key.safetensors"))
    assert torch.equal(read.head.modes.weight, network.head.modes.weight)


def test_every_so_many_th_seed_is_kept_back() -> None:
    paths = [Path(f"band_{seed}.npz") for seed in range(24, 52)]
    training, validation = split_clips(paths, 25)
    assert [path.stem for path in validation] == ["band_25", "band_50"]
    assert len(training) == 26
