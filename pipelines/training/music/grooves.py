"""Accompaniments by MMA (Musical MIDI Accompaniment): grooves over drawn chords, with a tune."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from pipelines.training.music.harmony import Harmony, progression, tune
from pipelines.training.music.score import ChordSpan, Note, Piece, UnusableError

_NOTES = ["C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B"]
_TIMEOUT_S = 30
_N_BARS = 80
_LEAD = 0
_LEAD_PROGRAMS = (
    1,
    4,
    11,
    16,
    22,
    24,
    26,
    28,
    30,
    40,
    52,
    54,
    56,
    57,
    60,
    64,
    65,
    66,
    68,
    71,
    73,
    80,
)
_TEMPI = (
    (r"ballad|slow|bolero", 82.0),
    (r"fast|quick|polka|bebop|jive|samba|punk|reel", 160.0),
    (r"waltz", 135.0),
    (r"swing|charleston|ragtime|dixie|foxtrot|jump", 160.0),
    (r"jazz(?!rock|rhumba|bossa)", 145.0),
)


def excluded_grooves(annotations: Path) -> set[str]:
    """Return the grooves of a development set's tracks; a missing set excludes none."""
    if not annotations.is_file():
        return set()
    tracks = json.loads(annotations.read_text())
    return {name.removeprefix("dband_") for name in tracks if name.startswith("dband_")}


def slug(name: str) -> str:
    """Spell a name as the development set does."""
    return re.sub(r"\W+", "_", name.lower()).strip("_")


class GrooveSource:
    """Draws pieces from MMA's library.

    Args:
        root: Where MMA's package is unpacked.
        scratch: Folder for MMA's files.
        development_set: Annotations whose grooves are left out.
    """

    def __init__(self, root: Path, scratch: Path, development_set: str) -> None:
        self._root = root
        self._scratch = scratch / str(os.getpid())
        self._scratch.mkdir(parents=True, exist_ok=True)
        self.grooves = list_grooves(
            root / "usr/share/mma/lib", excluded_grooves(Path(development_set))
        )

    def __call__(self, rng: Random, duration_s: float) -> Piece:
        """Draw a groove, chords and perhaps a tune; one call makes at least `_N_BARS` bars."""
        file, groove = rng.choice(self.grooves)
        siblings = [name for other, name in self.grooves if other == file]
        tempo = _draw_tempo(rng, f"{file} {groove}")
        n_bars = min(_N_BARS, int(duration_s * tempo / 60 / 2) + 8)
        harmony = progression(rng, n_bars)
        script, seconds = _script(rng, file, groove, siblings, harmony, tempo)
        midi = self._accompany(script)
        return _piece(rng, f"{file}:{groove}", midi, harmony, seconds, tempo)

    def _accompany(self, script: str) -> Path:
        source, target = self._scratch / "piece.mma", self._scratch / "piece.mid"
        source.write_text(script)
        target.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(self._root / "usr/share/mma")}
        command = ["python3", str(self._root / "usr/bin/mma"), "-f", str(target), str(source)]
        try:
            subprocess.run(  # noqa: S603
                command, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise UnusableError("MMA takes too long") from error
        if not target.exists():
            raise UnusableError("MMA made nothing")
        return target


def list_grooves(library: Path, excluded: set[str]) -> list[tuple[str, str]]:
    """Find the grooves: (library file without suffix, name), without introductions and endings.

    A file that defines an excluded groove is left out with all its variants.
    """
    found = []
    for path in sorted(library.rglob("*.mma")):
        names = re.findall(r"(?im)^\s*DefGroove\s+(\S+)", path.read_text(errors="replace"))
        if excluded.isdisjoint(map(slug, names)):
            file = str(path.relative_to(library))[:-4]
            found += [(file, n) for n in names if not re.search(r"(?i)(intro|end)[a-d\d]*$", n)]
    return found


def _draw_tempo(rng: Random, name: str) -> float:
    median = next((bpm for sign, bpm in _TEMPI if re.search(sign, name, re.IGNORECASE)), 115.0)
    return min(212.0, max(58.0, median * float(np.exp(rng.gauss(0, 0.27)))))


def _script(
    rng: Random,
    file: str,
    groove: str,
    siblings: Sequence[str],
    harmony: Harmony,
    tempo: float,
) -> tuple[str, dict[int, int]]:
    """Return MMA's input, and which bar lends its chord to each bar with a second chord."""
    seconds: dict[int, int] = {}
    lines = [f"Tempo {tempo}", f"RndSeed {rng.randrange(10**6)}", f"Groove {file}:{groove}"]
    for bar, chord in enumerate(harmony.chords):
        if bar and bar % 8 == 0 and rng.random() < 0.3:
            lines.append(f"Groove {file}:{rng.choice(siblings)}")
        symbol = _NOTES[harmony.root(bar)] + chord.quality
        if rng.random() < 0.15:
            other = seconds[bar] = rng.randrange(len(harmony.chords))
            symbol += f" / {_NOTES[harmony.root(other)]}{harmony.chords[other].quality}"
        lines += ["MidiMark B", f"{bar + 1} {symbol}"]
    return "\n".join(lines) + "\n", seconds


def _chords(harmony: Harmony, seconds: dict[int, int], n: int) -> list[ChordSpan]:
    """Return the chords, a second one from the third of four beats; leave out unclear bars."""
    bars = harmony.spans(n)
    chords: list[ChordSpan] = []
    for bar, chord in enumerate(bars):
        if bar not in seconds:
            chords.append(chord)
        elif n == 4:
            half = chord.start + 2
            chords.append(chord._replace(end=half))
            chords.append(bars[seconds[bar]]._replace(start=half, end=chord.end))
    return chords


def _piece(
    rng: Random,
    label: str,
    midi: Path,
    harmony: Harmony,
    seconds: dict[int, int],
    tempo: float,
) -> Piece:
    marks, metre, notes, programs = _read(midi)
    lengths = np.diff(marks)
    if len(lengths) < 4 or lengths.max() > 1.01 * lengths.min():
        raise UnusableError(f"{label} has uneven bars")
    n, unit, speed = _beats(round(float(np.median(lengths)), 2), metre)
    first = marks[0]
    notes = [
        note._replace(start=(note.start - first) / unit, end=(note.end - first) / unit)
        for note in notes
    ]
    has_tune = rng.random() < 0.6
    if has_tune:
        for at, length, pitch in tune(rng, harmony, range(len(marks)), n, rng.uniform(0.5, 1.0)):
            notes.append(Note(at, at + length, _LEAD, pitch, rng.randint(65, 110)))
        programs[_LEAD] = rng.choice(_LEAD_PROGRAMS)
    beats = [float(i) for i in range(len(marks) * n)]
    return Piece(
        f"groove:{label}",
        notes,
        programs,
        tempo * speed,
        beats,
        beats[::n],
        key=harmony.key,
        voice=_LEAD if has_tune else None,
        chords=_chords(harmony, seconds, n),
    )


def _beats(bar: float, metre: tuple[int, int]) -> tuple[int, float, float]:
    """Return the beats in a bar of `bar` quarters, quarters per beat, and the tempo's scale."""
    if abs(bar - round(bar)) > 0.01:
        raise UnusableError("a bar is no whole number of quarters")
    if metre == (6, 8) and bar in {3, 6}:
        return 2, bar / 2, 0.8
    if bar == 6:
        return 2, 3.0, 0.8
    if metre == (12, 8) and bar == 12:
        return 4, 3.0, 1.0
    return round(bar), 1.0, 1.0


def _read(path: Path) -> tuple[list[float], tuple[int, int], list[Note], dict[int, int]]:
    """Read a MIDI file: marks (bars), metre, notes and programs; times in quarters."""
    import mido

    midi = mido.MidiFile(path)
    marks: set[float] = set()
    metre = (4, 4)
    notes: list[Note] = []
    programs: dict[int, int] = {}
    for track in midi.tracks:
        now = 0
        open_notes: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for message in track:
            now += message.time
            at = now / midi.ticks_per_beat
            if message.type in {"marker", "cue_marker"}:
                marks.add(at)
            elif message.type == "time_signature":
                metre = (message.numerator, message.denominator)
            elif message.type == "program_change":
                programs[message.channel] = message.program
            elif message.type == "note_on" and message.velocity:
                key = (message.channel, message.note)
                open_notes.setdefault(key, []).append((at, message.velocity))
            elif message.type in {"note_on", "note_off"}:
                begun = open_notes.get((message.channel, message.note))
                if begun:
                    start, velocity = begun.pop(0)
                    notes.append(Note(start, at, message.channel, message.note, velocity))
    return sorted(marks), metre, notes, programs
