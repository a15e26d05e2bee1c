import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import mido
import numpy as np
import pytest

from pipelines.training.music import grooves
from pipelines.training.music.corpus import CorpusSource, _beat_quarters, _downbeats
from pipelines.training.music.grooves import GrooveSource, excluded_grooves, list_grooves
from pipelines.training.music.score import Note, UnusableError
from pipelines.training.plan import RenderPlan
from pipelines.training.render import list_tasks

ANNOTATIONS = {"dband_jazz_rock": {}, "dm21_bach_bwv256": {}, "gm_other": {}}


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(ANNOTATIONS))
    return path


def test_files_with_a_groove_of_the_development_set_are_left_out(
    tmp_path: Path, annotations: Path
) -> None:
    library = tmp_path / "lib"
    (library / "stdlib").mkdir(parents=True)
    (library / "stdlib" / "jazz.mma").write_text("DefGroove Jazz-Rock x\nDefGroove JazzFill\n")
    (library / "stdlib" / "polka.mma").write_text(
        "DefGroove Polka\ndefgroove PolkaIntro\nDefGroove PolkaEnd2\n  DefGroove PolkaSus more\n"
    )
    excluded = excluded_grooves(annotations)
    assert excluded == {"jazz_rock"}
    assert list_grooves(library, excluded) == [
        ("stdlib/polka", "Polka"),
        ("stdlib/polka", "PolkaSus"),
    ]
    assert excluded_grooves(tmp_path / "none.json") == set()


@pytest.mark.parametrize(
    ("bar", "metre", "expected"),
    [
        (4.0, (4, 4), (4, 1.0, 1.0)),
        (3.0, (3, 4), (3, 1.0, 1.0)),
        (3.0, (6, 8), (2, 1.5, 0.8)),
        (6.0, (6, 8), (2, 3.0, 0.8)),
        (12.0, (12, 8), (4, 3.0, 1.0)),
        (5.0, (5, 4), (5, 1.0, 1.0)),
    ],
)
def test_bars_of_grooves(
    bar: float, metre: tuple[int, int], expected: tuple[int, float, float]
) -> None:
    assert grooves._beats(bar, metre) == expected


def test_odd_bars_of_grooves_are_refused() -> None:
    with pytest.raises(UnusableError, match="no whole number"):
        grooves._beats(3.5, (7, 8))


def test_midi_files_are_read_exactly(tmp_path: Path) -> None:
    midi = mido.MidiFile(ticks_per_beat=96)
    track = mido.MidiTrack()
    track += [
        mido.MetaMessage("time_signature", numerator=3, denominator=4),
        mido.Message("program_change", channel=2, program=33),
        mido.MetaMessage("marker", text="B"),
        mido.Message("note_on", channel=2, note=40, velocity=90, time=48),
        mido.Message("note_on", channel=2, note=40, velocity=0, time=96),
        mido.MetaMessage("marker", text="B", time=144),
    ]
    midi.tracks.append(track)
    midi.save(tmp_path / "a.mid")
    marks, metre, notes, programs = grooves._read(tmp_path / "a.mid")
    assert (marks, metre, programs) == ([0.0, 3.0], (3, 4), {2: 33})
    assert notes == [Note(0.5, 1.5, 2, 40, 90)]


def test_a_groove_of_the_package_is_labelled_by_its_bars(tmp_path: Path) -> None:
    program = shutil.which("mma")
    if program is None or not Path("/usr/share/mma/lib").is_dir():
        pytest.skip("the package mma is not installed")
    source = GrooveSource(Path("/"), tmp_path, "")
    piece = source(Random(1), 10.0)
    assert np.diff(piece.beats) == pytest.approx(1.0)
    assert len(set(np.diff(piece.downbeats))) == 1


def test_beats_of_metres() -> None:
    quarters = {(4, 4): 1.0, (2, 2): 2.0, (6, 8): 1.5, (12, 8): 1.5, (3, 8): 0.5, (5, 8): 0.5}
    assert {metre: _beat_quarters(*metre) for metre in quarters} == quarters


@pytest.mark.parametrize(
    ("bars", "expected"),
    [
        ([(0, 4), (4, 4), (8, 4)], [0, 4, 8]),
        ([(0, 1), (1, 4), (5, 4)], [1, 5]),  # A pick-up.
        ([(0, 4), (4, 3), (7, 1), (8, 4)], [0, 4, 8]),  # A bar split by a repeat.
        ([(0, 1), (1, 4), (5, 3)], [1, 5]),  # The last bar lacks the pick-up.
    ],
)
def test_downbeats_of_scores(bars: list[tuple[float, float]], expected: list[float]) -> None:
    assert _downbeats(bars, 4.0) == expected


def test_scores_are_drawn_and_those_of_the_development_set_are_not(
    tmp_path: Path, annotations: Path
) -> None:
    pytest.importorskip("music21", reason="afa[train] is not installed")
    source = CorpusSource(tmp_path / "cache", str(annotations))
    listed = {path.stem for paths in source._list().values() for path in paths}
    assert "bwv256" not in listed
    assert len(listed) > 300
    source._scores = {"bach": [p for p in source._scores["bach"] if p.stem == "bwv269"]}
    if not source._scores["bach"]:
        source._scores = {"bach": CorpusSource(tmp_path, "")._list()["bach"][:1]}
    first, again = (source(Random("x"), 30.0) for _ in range(2))
    assert first == again  # The second is read from the cache.
    assert first.is_expressive
    assert {note.channel for note in first.notes} <= set(first.programs)
    on_beat = np.mod([note.start - first.beats[0] for note in first.notes], 1.0) < 1e-6
    assert on_beat.mean() > 0.5
    assert set(first.downbeats) <= {round(beat, 6) for beat in first.beats}


def test_tasks_do_not_depend_on_the_hours(tmp_path: Path) -> None:
    plan = RenderPlan(
        hours=1.0,
        clip_s=36.0,
        seed=0,
        shares={"a": 0.7, "b": 0.3},
        validation_every=40,
        held_out_clips=5,
        packages=[],
        fonts={},
        drum_fonts={},
        kits="",
        held_out_fonts=[],
        held_out_kits=[],
        development_set="",
    )
    tasks = list_tasks(plan, tmp_path)
    assert len(tasks) == 105
    assert [task.is_held_out for task in tasks[-6:]] == [False, *[True] * 5]
    assert 55 < sum(task.kind == "a" for task in tasks[:100]) < 85
    assert len({task.seed for task in tasks}) == len({task.path for task in tasks}) == 105
    longer = list_tasks(replace(plan, hours=2.0), tmp_path)
    assert longer[:100] == tasks[:100]
    assert longer[200:] == tasks[100:]
