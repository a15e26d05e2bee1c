"""The chord benchmark: what is compared, what is left out, and how pieces are labelled."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.chord_pieces import (
    chords_of,
    heard_labels,
    label_of,
    score_named_in,
    share_in_chords,
)
from benchmarks.accuracy.chords import compare, right_by_confidence, run
from benchmarks.evaluation_set import Setting
from benchmarks.report import Options
from models.tonality.chordnet import NO_CHORD
from pipelines.analysis.records import Chord
from pipelines.training.chords.clips import ROOT_ONLY
from pipelines.training.music.performance import Performance
from pipelines.training.music.score import DRUMS, EFFECTS, ChordSpan, Note
from tests.data.audio_files import write_wav
from tests.data.synthetic_music import chord


def said(
    *chords: tuple[float, int, int], bass: int | None = None, sure: float = 0.8
) -> list[Chord]:
    """Return consecutive chords, each given as (end in seconds, root, mode)."""
    starts = [0.0, *(end for end, *_ in chords)]
    return [
        Chord(start, end - start, root, mode, root if bass is None else bass, sure)
        for start, (end, root, mode) in zip(starts, chords, strict=False)
    ]


def test_without_music_it_says_what_makes_it(tmp_path: Path) -> None:
    skipped = run(Options(), Setting(chords=tmp_path)).skipped
    assert "python -m benchmarks.accuracy.chord_pieces" in skipped


def test_a_share_of_the_time_is_right() -> None:
    truth = [(0.0, 4.0, "C:maj"), (4.0, 8.0, "A:min")]
    scores = compare(truth, said((6.0, 0, 1), (8.0, 9, 0)))
    assert scores["majmin"] == pytest.approx(0.75)
    assert scores["root"] == pytest.approx(0.75)


def test_a_wrong_mode_keeps_the_root_and_another_bass_is_told() -> None:
    truth = [(0.0, 4.0, "C:maj/3")]
    assert compare(truth, said((4.0, 0, 0))) == {"majmin": 0.0, "root": 1.0, "majmin_inv": 0.0}
    assert compare(truth, said((4.0, 0, 1), bass=4))["majmin_inv"] == 1.0
    assert compare(truth, said((4.0, 0, 1)))["majmin_inv"] == 0.0


def test_what_is_not_known_counts_for_nothing() -> None:
    truth = [(1.0, 2.0, "X"), (2.0, 3.0, "C:maj"), (5.0, 6.0, "C:maj")]
    assert compare(truth, said((2.5, 7, 1), (4.9, 0, 1), (9.0, 0, 1)))["majmin"] == 0.75
    assert compare([(0.0, 2.0, "D:1")], said((2.0, 2, 0))) == {"root": 1.0}


def test_confidences_are_held_against_what_was_right() -> None:
    truth = [(0.0, 4.0, "C:maj"), (4.0, 9.0, "X")]
    shares = right_by_confidence(
        [
            (truth, said((9.0, 0, 1), sure=1.0)),
            (truth, said((9.0, 0, 1), sure=0.5)),
            (truth, said((9.0, 0, 0), sure=0.6)),
        ]
    )
    assert shares == [(None, 0.0), (0.5, 8.0), (None, 0.0), (1.0, 4.0)]


def test_silence_is_no_chord_and_an_absent_piece_is_named(tmp_path: Path, model_dir: Path) -> None:
    write_wav(tmp_path / "band_00.wav", np.zeros((1, 5 * 44_100), np.float32))
    pieces = {"band_00": {"kind": "band", "chords": [(0.0, 5.0, "N")]}}
    (tmp_path / "annotations.json").write_text(json.dumps(pieces))
    setting = Setting(chords=tmp_path, model_dir=model_dir)
    assert run(Options(), setting).values["kinds"]["band"]["majmin"]["mean"] == 1.0
    pieces["band_01"] = pieces["band_00"]
    (tmp_path / "annotations.json").write_text(json.dumps(pieces))
    assert "band_01.wav" in run(Options(), setting).skipped
    assert not run(Options(is_quick=True), setting).skipped


def test_chords_that_sound_are_found(tmp_path: Path, model_dir: Path) -> None:
    triads = [(0, 4), (9, 3), (5, 4), (7, 4)] * 3
    audio = np.concatenate([chord(root, third, 2.0) for root, third in triads])
    names = {0: "C:maj", 9: "A:min", 5: "F:maj", 7: "G:maj"}
    truth = [(2.0 * i, 2.0 * i + 2, names[root]) for i, (root, _) in enumerate(triads)]
    wrong = [(start, end, "C#:min") for start, end, _ in truth]
    for name in ("band_00", "wrong_00"):
        write_wav(tmp_path / f"{name}.wav", audio[None])
    content = {
        "band_00": {"kind": "band", "chords": truth},
        "wrong_00": {"kind": "recording", "chords": wrong},
    }
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    result = run(Options(), Setting(chords=tmp_path, model_dir=model_dir))
    kinds = result.values["kinds"]
    assert kinds["band"]["majmin"]["mean"] > 0.9
    assert kinds["recording"]["majmin"]["mean"] == 0.0
    assert set(kinds["band"]) == {*kinds["recording"], "majmin_inv"}
    assert [row[0] for row in result.rows] == ["band", "recording"]


def test_a_played_chord_is_labelled_with_what_sounds_and_its_bass() -> None:
    notes = [
        *(Note(0.0, 2.0, 0, pitch, 90) for pitch in (52, 60, 64, 67)),
        Note(0.0, 0.2, DRUMS, 36, 90),
        *(Note(2.0, 4.0, 0, pitch, 90) for pitch in (43, 50)),
        *(Note(4.0, 6.0, 0, pitch, 90) for pitch in (45, 48, 52)),
        Note(4.0, 4.3, 0, 40, 90),
        Note(4.0, 6.0, EFFECTS, 1, 90),
    ]
    chords = [
        ChordSpan(-1.0, 2.0, 0, (0, 4, 7)),
        ChordSpan(2.0, 4.0, 7, (0, 4, 7)),
        ChordSpan(4.0, 6.0, 9, (0, 3, 7)),
        ChordSpan(6.0, 6.03, 5, (0, 4, 7)),
        ChordSpan(6.03, 9.0, 2, (0, 3, 7)),
    ]
    played = Performance(notes, np.zeros(0), np.zeros(0), chords)
    assert chords_of(played, 7.0) == [
        (0.0, 2.0, "C:maj/3"),
        (2.0, 4.0, "G:1"),
        (4.0, 6.0, "A:min"),
        (6.03, 7.0, "N"),
    ]


def test_what_the_teacher_is_not_sure_of_is_not_known() -> None:
    chords = np.zeros((60, 37), np.float32)
    chords[:20, 12 + 9], chords[20:30, 0], chords[30:40, 24 + 2], chords[40:, 36] = (
        0.9,
        0.4,
        0.8,
        0.7,
    )
    hop_s = 512 / 22_050
    assert heard_labels(chords, 1.4) == [
        (0.0, pytest.approx(19.5 * hop_s), "A:min"),
        (pytest.approx(19.5 * hop_s), pytest.approx(29.5 * hop_s), "X"),
        (pytest.approx(29.5 * hop_s), pytest.approx(39.5 * hop_s), "D:1"),
        (pytest.approx(39.5 * hop_s), 1.4, "N"),
    ]


def test_an_analysis_of_another_score_does_not_fit() -> None:
    notes = [Note(float(i), i + 0.9, 0, pitch, 90) for i, pitch in enumerate((60, 64, 67, 62))]
    assert share_in_chords(notes, [ChordSpan(0.0, 4.0, 0, (0, 4, 7))]) == 0.75
    assert share_in_chords(notes, [ChordSpan(0.0, 4.0, 1, (0, 4, 7))]) == 0.0


def test_codes_are_written_in_hartes_notation() -> None:
    assert label_of(NO_CHORD, 0) == "N"
    assert label_of(ROOT_ONLY + 11, 3) == "B:1"
    assert label_of(-1, 3) == "X"
    assert label_of(4, -1) == "E:maj"


@pytest.mark.parametrize(
    ("work", "score"),
    [("269", "bwv269"), ("153.1", "bwv153.1"), ("248(2).12", "bwv248.12-2")],
)
def test_an_analysis_names_its_score(work: str, score: str) -> None:
    assert score_named_in(f"Composer: J. S. Bach\nBWV: {work}\nTitle: x\n") == score
