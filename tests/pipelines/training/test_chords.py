from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from configs.tables import load_table
from models.tonality.chordnet import NO_CHORD, ChordNetwork
from models.tonality.keynet import KeyNetwork
from pipelines.training.chords.clips import (
    ROOT_ONLY,
    UNKNOWN_CHORD,
    ChordClip,
    inverted,
    measure,
    retuned,
    told,
)
from pipelines.training.chords.fit import ChordTrainer, chord_loss, draw_batch, moved, score_clips
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
        # Its third is silent, its root, or all of it.
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
    # Truth moves with the sound.
    assert torch.equal(first.chords % 12, first.bass)
