from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from models.tonality.keynet import SAMPLE_RATE, KeyNetwork
from pipelines.training.clips import UNKNOWN_KEY
from pipelines.training.cycle import CyclePlan, parse_run, split_clips, write
from pipelines.training.key.augmentation import augment, transposed
from pipelines.training.key.chord_keys import key_of_chords
from pipelines.training.key.clips import NO_BASS, KeyClip, make_key_clip, measure
from pipelines.training.key.fit import (
    HeardStretches,
    KeyTrainer,
    draw_batch,
    key_targets,
    score_clips,
)
from pipelines.training.key.recordings import HeardRecording, KeyEar
from pipelines.training.music.performance import Performance
from pipelines.training.music.score import DRUMS, Note
from pipelines.training.plan import KINDS, PlanError
from pipelines.training.render import generators_of, render


@pytest.fixture
def plan() -> CyclePlan:
    shipped = parse_run(load_table("train_key")).fit
    return replace(shipped, steps=2, batch=2, segment_frames=8)


def clip(key: int) -> KeyClip:
    """A major triad on the key, with the key as its bass."""
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
    # A and D, two semitones higher and earlier by the same ratio.
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


def recording(key: int, certainty: float = 1.0, n_stretches: int = 1) -> HeardRecording:
    """A recording of major triads, with the keys that were found in its stretches."""
    keys = np.full((n_stretches, 24), (1 - certainty) / 23, dtype=np.float32)
    keys[:, key] = certainty
    return HeardRecording(np.stack([clip(key).bands] * n_stretches), keys)


def test_a_stretch_and_the_key_that_was_heard_move_together(plan: CyclePlan) -> None:
    stretches = HeardStretches([recording(2), recording(9)])
    batch = stretches.draw(32, plan, 0)
    roots = batch.keys.argmax(1)
    assert batch.keys.sum(1).tolist() == pytest.approx([1.0] * 32)
    assert len(set(roots.tolist())) > 8
    for bands, root in zip(batch.bands, roots.tolist(), strict=True):
        classes = bands.mean(0).unflatten(0, (5, 12, 3)).sum((0, 2))
        triad = [root, (root + 4) % 12, (root + 7) % 12]
        assert classes[triad].sum() > 2 * (classes.sum() - classes[triad].sum()) / 3
    assert torch.equal(
        batch.bands, HeardStretches([recording(2), recording(9)]).draw(32, plan, 0).bands
    )


def test_what_is_sure_is_drawn_more_often_and_what_is_long_less(plan: CyclePlan) -> None:
    drawn = HeardStretches([recording(0), recording(12, 0.5)]).draw(200, plan, 0).keys
    assert 140 < int((drawn.max(1).values > 0.9).sum()) < 180  # four out of five
    drawn = HeardStretches([recording(0), recording(12, n_stretches=9)]).draw(200, plan, 0).keys
    assert 130 < int((drawn[:, 12:].sum(1) > 0.9).sum()) < 170  # three out of four


def test_a_run_learns_from_recordings(plan: CyclePlan) -> None:
    unknown = [replace(clip(0), key=UNKNOWN_KEY)]
    plan = replace(plan, steps=40, batch=8)
    trained = KeyTrainer(plan, unknown, [recording(n) for n in range(12)]).run(lambda *_: None)
    idle = KeyTrainer(plan, unknown).run(lambda *_: None)
    truth = [clip(n) for n in range(12)]
    assert score_clips(trained, truth) > 0.5 > score_clips(idle, truth)


@pytest.fixture(scope="module")
def ear(model_dir: Path) -> KeyEar:
    return KeyEar(choose_cards(parse_cards(load_table("models"))), model_dir)


def cadence(transposed_by: int, seconds: float) -> torch.Tensor:
    """C, F, G7, C with a bell-like sound, float32 ``[T]``."""
    samples = torch.zeros(round(seconds * SAMPLE_RATE))
    t = torch.arange(SAMPLE_RATE) / SAMPLE_RATE
    chords = ((36, 60, 64, 67), (41, 60, 65, 69), (43, 59, 65, 67), (36, 60, 64, 67))
    for n in range(int(seconds)):
        for note in chords[n % 4]:
            hz = 440 * 2 ** ((note + transposed_by - 69) / 12)
            for k in (1, 2, 3, 4):
                sound = torch.sin(2 * torch.pi * hz * k * t) * torch.exp(-2 * t) / k**2
                samples[n * SAMPLE_RATE : (n + 1) * SAMPLE_RATE] += 0.1 * sound
    return samples


def test_the_keys_of_a_recording_are_those_that_are_heard_stretch_by_stretch(ear: KeyEar) -> None:
    samples = torch.cat([cadence(0, 180), cadence(6, 180)])
    heard = ear.hear(samples)
    assert heard is not None
    assert heard.bands.shape[0] == 12
    assert heard.keys.sum(1).tolist() == pytest.approx([1.0] * 12, abs=1e-4)
    assert heard.keys.argmax(1).tolist() == [0] * 6 + [6] * 6
    # Next to the change, the other key is considered possible.
    assert heard.keys[5, 6] > 10 * heard.keys[0, 6]


def test_silence_and_short_sounds_are_no_recordings(ear: KeyEar) -> None:
    assert ear.hear(torch.zeros(40 * SAMPLE_RATE)) is None
    assert ear.hear(cadence(0, 30)) is None
    half = torch.cat([cadence(0, 58), torch.zeros(62 * SAMPLE_RATE)])
    heard = ear.hear(half)
    assert heard is not None
    assert len(heard.keys) == 2


def test_targets_are_distributions_around_the_key() -> None:
    targets = key_targets()
    assert targets.sum(1).tolist() == pytest.approx([1.0] * 24)
    # The relative of C major is A minor, and that of A minor is C major.
    assert targets[0, 21] == targets[21, 0] == pytest.approx(0.04)


def test_a_run_is_trained_scored_and_written(plan: CyclePlan, tmp_path: Path) -> None:
    losses: list[float] = []
    network = KeyTrainer(plan, [clip(0), clip(7)]).run(lambda _, loss: losses.append(loss))
    assert len(losses) == 2
    assert 0 <= score_clips(network, [clip(3)]) <= 1
    write(network, tmp_path / "key.safetensors")
    read = KeyNetwork.from_tensors(load_file(tmp_path / "key.safetensors"))
    assert torch.equal(read.head.modes.weight, network.head.modes.weight)


def test_weights_of_a_training_that_diverged_are_not_written(tmp_path: Path) -> None:
    network = KeyNetwork()
    network.head.modes.weight.data[0] = torch.inf
    with pytest.raises(PlanError, match="diverged"):
        write(network, tmp_path / "key.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"shares": {}}, "render.shares must name kinds"),
        ({"shares": {"band": 0}}, "render.shares must name kinds"),
        ({"held_out_clips": 1, "held_out_fonts": []}, "needs render.held_out_fonts and"),
        ({"shares": {"band": 1, "jazz": 1}}, r"\['jazz'\] are none of band, classical"),
        ({"hours": -1}, "hours must be above 0"),
        ({"validation_every": 1}, "validation_every must be 2 or more"),
    ],
)
def test_a_render_that_makes_nothing_is_refused(changed: dict[str, object], told: str) -> None:
    content = load_table("train_key")
    with pytest.raises(PlanError, match=told):
        parse_run(content | {"render": content["render"] | changed})


def test_the_kinds_of_a_description_are_those_that_are_invented(tmp_path: Path) -> None:
    plan = parse_run(load_table("train_key")).render
    assert sorted(generators_of(plan, tmp_path, tmp_path)) == sorted(KINDS)


def test_drum_kits_that_no_package_has_are_told(tmp_path: Path) -> None:
    plan = replace(parse_run(load_table("train_key")).render, packages=[])
    with pytest.raises(PlanError, match=r"render\.kits: no package"):
        render(make_key_clip, plan, tmp_path, 1, lambda _done, _total: None)


def test_every_so_many_th_seed_is_kept_back() -> None:
    paths = [Path(f"band_{seed}.npz") for seed in range(24, 52)] + [Path("band_30.part.npz")]
    training, validation = split_clips(paths, 25)
    assert [path.stem for path in validation] == ["band_25", "band_50"]
    assert len(training) == 26


@pytest.mark.parametrize("tonic", range(12))
@pytest.mark.parametrize(
    ("mode", "chords"),
    [
        (1, {0: 0.4, 5: 0.25, 7: 0.25, 21: 0.1}),
        (1, {0: 0.5, 5: 0.25, 10: 0.25}),
        (0, {12: 0.4, 8: 0.2, 10: 0.2, 17: 0.2}),
        (0, {12: 0.9, 24: 0.1}),
    ],
    ids=["I IV V vi", "mixolydian rock", "i VI VII iv", "one chord"],
)
def test_chords_tell_the_key(tonic: int, mode: int, chords: dict[int, float]) -> None:
    shares = np.zeros(25)
    for chord, share in chords.items():
        at = chord if chord == 24 else chord // 12 * 12 + (chord + tonic) % 12
        shares[at] = share
    found = key_of_chords(shares)
    assert found.sum() == pytest.approx(1)
    assert found.argmax() == tonic + 12 * (1 - mode)
