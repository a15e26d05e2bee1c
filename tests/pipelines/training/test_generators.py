from random import Random

import numpy as np
import pytest

from pipelines.training.clips import Generator
from pipelines.training.music.bands import STYLES as BAND_STYLES
from pipelines.training.music.bands import band
from pipelines.training.music.classical import classical
from pipelines.training.music.electronic import STYLES, electronic
from pipelines.training.music.harmony import Chord, progression
from pipelines.training.music.performance import perform, tempo_map
from pipelines.training.music.score import DRUMS, KICK, Note, Piece, UnusableError

GENERATORS = {"electronic": electronic, "band": band, "classical": classical}


def rng(seed: int) -> Random:
    return Random(f"test {seed}")


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_seed_gives_the_same_piece(kind: str) -> None:
    first, again = (GENERATORS[kind](rng(3), 20.0) for _ in range(2))
    assert first == again
    assert first != GENERATORS[kind](rng(4), 20.0)


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("seed", range(8))
def test_bars_are_equal_and_the_piece_is_long_enough(kind: str, seed: int) -> None:
    piece = GENERATORS[kind](rng(seed), 30.0)
    assert np.diff(piece.beats) == pytest.approx(1.0)
    bars = np.diff(piece.downbeats)
    assert set(bars) <= {2.0, 3.0, 4.0, 5.0, 7.0}
    assert len(set(bars)) == 1
    assert set(piece.downbeats) <= set(piece.beats)
    assert piece.beats[-1] * 60 / piece.tempo > 29
    assert all(0 < note.pitch < 128 or note.channel == 16 for note in piece.notes)
    assert all(1 <= note.velocity <= 127 and note.end > note.start for note in piece.notes)


def test_all_styles_occur() -> None:
    drawn = {electronic(rng(seed), 10.0).label for seed in range(150)}
    assert drawn == {f"electronic:{name}" for name in STYLES}
    drawn = {band(rng(seed), 10.0).label for seed in range(500)}
    assert drawn == {f"band:{name}" for name in BAND_STYLES}


def test_house_has_its_kick_on_the_beat() -> None:
    pieces = (electronic(rng(seed), 60.0) for seed in range(60))
    house = next(p for p in pieces if p.label == "electronic:house" and has_drums(p))
    kicks = [note.start for note in house.notes if note.channel == DRUMS and note.pitch == KICK]
    assert len(kicks) > 20
    assert np.mod(kicks, 1.0) == pytest.approx(0.0)


def has_drums(piece: Piece) -> bool:
    return sum(note.channel == DRUMS and note.pitch == KICK for note in piece.notes) > 20


def test_basses_change_with_the_bars_chords() -> None:
    piece = band(rng(1), 30.0)
    roots = {note.pitch % 12 for note in piece.notes if note.channel == 1 and note.start % 1 == 0}
    assert len(roots) > 1


def test_chord_tones() -> None:
    assert Chord(0, "m7b5").tones == [0, 3, 6, 10]
    assert Chord(5, "M7").tones == [0, 4, 7, 11]
    assert Chord(7, "").tones == [0, 4, 7]


def test_a_progression_has_a_chord_for_every_bar_and_its_root_below_its_tones() -> None:
    harmony = progression(rng(2), 17)
    assert len(harmony.chords) == 17
    for bar in range(17):
        pitches = harmony.pitches(bar, 48)
        assert 48 <= pitches[0] < 60
        assert pitches[0] % 12 == harmony.root(bar)


def metronome(is_expressive: bool) -> Piece:
    beats = [float(i) for i in range(200)]
    notes = [Note(beat, beat + 0.5, 0, 60, 90) for beat in beats]
    return Piece("metronome", notes, {}, 120.0, beats, beats[::4], is_expressive=is_expressive)


@pytest.mark.parametrize("is_expressive", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_labels_move_with_the_notes(is_expressive: bool, seed: int) -> None:
    performance = perform(metronome(is_expressive), rng(seed), 45.0)
    notes = np.array([note.start for note in performance.notes])
    assert len(performance.beats) > 40
    nearest = np.abs(performance.beats[:, None] - notes).min(axis=1)
    # Bounds of a player's inaccuracy: at most, and in the median.
    assert nearest.max() < 0.08
    assert np.median(nearest) < 0.02
    assert set(performance.downbeats) <= set(performance.beats)
    assert np.all(np.diff(performance.beats) > 0.1)


def test_a_machine_is_exact() -> None:
    beats = [float(i) for i in range(200)]
    notes = [Note(beat, beat + 0.5, 0, 60, 90) for beat in beats]
    piece = Piece("machine", notes, {}, 120.0, beats, beats[::4], is_electronic=True)
    for seed in range(6):
        performance = perform(piece, rng(seed), 30.0)
        starts = np.array([note.start for note in performance.notes])
        # Labels extend one note further at most.
        n = min(len(starts), len(performance.beats))
        assert performance.beats[:n] == pytest.approx(starts[:n], abs=1e-9)


def test_time_always_passes() -> None:
    for seed in range(40):
        seconds = tempo_map(rng(seed), metronome(is_expressive=True), 300.0)
        assert np.all(np.diff(seconds(np.arange(0, 290, 0.5))) > 0.05)


def test_too_few_notes_are_refused() -> None:
    piece = metronome(is_expressive=False)
    short = Piece("short", piece.notes[:10], {}, 120.0, piece.beats[:10], [0.0])
    with pytest.raises(UnusableError, match="10 notes"):
        perform(short, rng(0), 45.0)
    with pytest.raises(ValueError, match="no notes"):
        Piece("empty", [], {}, 120.0, [0.0], [0.0])


def test_generators_fit_their_protocol() -> None:
    generators: dict[str, Generator] = dict(GENERATORS)
    assert all(generators[name](rng(0), 5.0).notes for name in generators)
