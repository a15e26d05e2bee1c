"""Keys, chords and tunes for the generators."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pipelines.training.music.score import ChordSpan


@dataclass(frozen=True, slots=True)
class Mode:
    """The material of one kind of music.

    Attributes:
        weight: How often it is drawn, relative to the others.
        is_minor: Whether its key is labelled as minor.
        scales: Scales of the tunes, in semitones above the tonic.
        loops: Chords of some bars, separated by ``|``: degree and quality, see `Chord`.
    """

    weight: float
    is_minor: bool
    scales: Sequence[Sequence[int]]
    loops: str


_MAJOR = """0 5 7 0|0 9m 5 7|0 7 9m 5|9m 5 0 7|0 4m 5 7|2m7 7 0 0|0 5 0 7|0 0 5 5m|0 10 5 0|
0 9m7 2m7 7|0M7 2m7 4m7 2m7|0 3 5 0|5 7 4m 9m|0 0 7 7|0 7 5 5|9m 7 5 7|5 0 7 9m|0 2m 5 7"""
_MINOR = """0m 8 10 0m|0m 5m 7 0m|0m 10 8 7|0m 8 3 10|0m 5m 10 3|0m 0m 5m 5m|0m 10 0m 10|
0m7 5m7 0m7 7|2m7b5 7 0m 0m|0m 3 5 8|0m 0m 0m 0m|0m 7 0m 7|8 10 0m 0m|0m 0m 8 10|0m 8 5m 7"""
_MIXOLYDIAN = """0 10 5 0|0 5 10 0|0 10 0 10|0 0 10 5|0 7m 5 0|0 10 5 5|0 3 5 0|0 3 10 5|0 5 3 0|
0 10 8 10|0 0 3 5|0 8 10 0|0 0 5 5|0 10 10 5|5 5 0 0|07 07 07 57"""
_BLUES = """07 07 07 07 57 57 07 07 77 57 07 77|07 57 07 07 57 57 07 07 77 57 07 07|
0 0 0 0 5 5 0 0 7 5 0 0|07 07 07 07|07 07 57 57|07 97 27 77|07 57 07 77"""
_DORIAN = """0m 5 0m 5|0m7 57 0m7 57|0m 10 5 0m|0m 0m 10 5|0m 3 5 0m|0m 3 10 5|0m7 0m7 57 57|
0m 2m 0m 2m|0m 10 0m 5"""
_PHRYGIAN = "0m 1 0m 1|0m 0m 1 10|0m 8 1 0m|05 05 15 05|05 35 15 05|05 65 55 05"
_MINOR_VAMP = """0m 0m 0m 0m|0m7 0m7 0m7 0m7|0m 0m 0m 10|0m 0m 10 0m|05 05 05 35|05 05 35 55|
05 35 55 05|05 105 05 35|05 105 85 105|0m7 5m7 0m7 5m7"""
_MAJOR_VAMP = """0 0 0 0|07 07 07 07|0 0 0 5|0M7 0M7 5M7 5M7|05 05 35 55|05 55 105 05|05 105 55 05|
0 2m 0 2m"""
_JAZZ = """0M7 9m7 2m7 77|2m7 77 0M7 0M7|0M7 97 27 77|0M7 5M7 4m7 97 2m7 77 0M7 0M7|
0M7 0m7 10m7 37 8M7 8M7 2m7 77|47 97 27 77 0 0 0 0"""
_MINOR_JAZZ = """0m7 5m7 2m7b5 77|2m7b5 77 0m7 0m7|0m7 8M7 2m7b5 77|
5m7 107 3M7 8M7 2m7b5 77 0m7 0m7|0m 7 8 5"""

_DIATONIC, _FLAT_SEVENTH = (0, 2, 4, 5, 7, 9, 11), (0, 2, 4, 5, 7, 9, 10)
_NATURAL_MINOR, _HARMONIC_MINOR = (0, 2, 3, 5, 7, 8, 10), (0, 2, 3, 5, 7, 8, 11)
_DORIAN_SCALE, _MELODIC_MINOR = (0, 2, 3, 5, 7, 9, 10), (0, 2, 3, 5, 7, 9, 11)
_FIVE, _MINOR_FIVE = (0, 2, 4, 7, 9), (0, 3, 5, 7, 10)
_BLUE, _DEEP_BLUE = (0, 3, 5, 6, 7, 10), (0, 3, 4, 5, 7, 10)

_MODES = (
    Mode(3.0, False, (_DIATONIC, _FIVE), _MAJOR),
    Mode(2.0, False, (_FLAT_SEVENTH, _FIVE, _MINOR_FIVE), _MIXOLYDIAN),
    Mode(2.0, False, (_DEEP_BLUE, _BLUE, (0, 2, 3, 4, 7, 9)), _BLUES),
    Mode(1.0, False, (_FIVE, _MINOR_FIVE, _FLAT_SEVENTH), _MAJOR_VAMP),
    Mode(1.5, False, (_DIATONIC, _DEEP_BLUE), _JAZZ),
    Mode(3.0, True, (_NATURAL_MINOR, _MINOR_FIVE), _MINOR),
    Mode(2.0, True, (_DORIAN_SCALE, _MINOR_FIVE, _BLUE), _DORIAN),
    Mode(0.8, True, ((0, 1, 3, 5, 7, 8, 10), (0, 1, 3, 5, 6, 7, 10)), _PHRYGIAN),
    Mode(2.0, True, (_MINOR_FIVE, _NATURAL_MINOR, _BLUE), _MINOR_VAMP),
    Mode(1.0, True, (_NATURAL_MINOR, _MELODIC_MINOR, _HARMONIC_MINOR), _MINOR_JAZZ),
)


@dataclass(frozen=True, slots=True)
class Chord:
    """A chord; `degree` in semitones above the tonic, `quality` as in ``m7b5``, ``5``: a fifth."""

    degree: int
    quality: str

    @property
    def tones(self) -> list[int]:
        """Semitones above the chord's root."""
        if self.quality == "5":
            return [0, 7, 12]
        third = 3 if self.quality.startswith("m") else 4
        fifth = 6 if "b5" in self.quality else 7
        if "7" not in self.quality:
            return [0, third, fifth]
        return [0, third, fifth, 11 if "M7" in self.quality else 10]


@dataclass(frozen=True, slots=True)
class Harmony:
    """A key, one chord for each bar, and the tunes' scale in semitones above the tonic."""

    tonic: int
    is_minor: bool
    chords: Sequence[Chord]
    steps: Sequence[int] = _DIATONIC

    @property
    def key(self) -> int:
        """Tonic's pitch class, plus 12 for minor."""
        return self.tonic + 12 * self.is_minor

    @property
    def scale(self) -> list[int]:
        """Pitch classes of the tunes' scale."""
        return [(self.tonic + step) % 12 for step in self.steps]

    def root(self, bar: int) -> int:
        """Pitch class of a bar's root."""
        return (self.tonic + self.chords[bar].degree) % 12

    def spans(self, beats_per_bar: float) -> list[ChordSpan]:
        """Return the chords bar by bar."""
        return [
            ChordSpan(
                bar * beats_per_bar, (bar + 1) * beats_per_bar, self.root(bar), tuple(chord.tones)
            )
            for bar, chord in enumerate(self.chords)
        ]

    def pitches(self, bar: int, base: int) -> list[int]:
        """Pitches of a bar's chord, with the root within the octave above `base`."""
        root = base + (self.root(bar) - base) % 12
        return [root + tone for tone in self.chords[bar].tones]


def _parse(progression: str) -> list[Chord]:
    chords = []
    for word in progression.split():
        # 105 is a fifth on the tenth degree, 07 a seventh chord on the tonic.
        digits = 2 if word.startswith(("10", "11")) else 1
        chords.append(Chord(int(word[:digits]), word[digits:]))
    return chords


def progression(rng: Random, n_bars: int, holds: Sequence[int] = (1, 1, 1, 2)) -> Harmony:
    """Draw a mode, a key and a chord for every bar: sections of loops, some repeated."""
    mode = rng.choices(_MODES, [mode.weight for mode in _MODES])[0]
    sections = [_parse(rng.choice(mode.loops.split("|"))) for _ in range(rng.choice([1, 1, 2, 3]))]
    hold = rng.choice(holds)
    chords: list[Chord] = []
    while len(chords) < n_bars:
        for chord in rng.choice(sections) * rng.choice([1, 2, 2]):
            chords += [chord] * hold
    return Harmony(rng.randrange(12), mode.is_minor, chords[:n_bars], rng.choice(mode.scales))


def tune(
    rng: Random, harmony: Harmony, bars: Sequence[int], beats_per_bar: int, density: float
) -> list[tuple[float, float, int]]:
    """Invent a tune over bars as (start, length, pitch), in beats; its rhythm repeats.

    Args:
        rng: Draws the tune.
        harmony: Chords, whose tones strong beats prefer.
        bars: Indices of the bars that have the tune.
        beats_per_bar: Beats per bar.
        density: Share of the rhythm's notes that sound.
    """
    cell_bars = rng.choice([1, 2, 2, 4])
    cell = _rhythm(rng, cell_bars * beats_per_bar)
    pitch = rng.randrange(62, 76)
    melody = []
    for order, bar in enumerate(bars):
        inside = order % cell_bars * beats_per_bar
        for at, length in cell:
            if not inside <= at < inside + beats_per_bar or rng.random() > density:
                continue
            start = bar * beats_per_bar + at - inside
            chord = {(harmony.root(bar) + tone) % 12 for tone in harmony.chords[bar].tones}
            wanted = chord if at % 1 == 0 and rng.random() < 0.7 else set(harmony.scale)
            goal = pitch + rng.choice([-3, -2, -1, -1, 0, 1, 1, 2, 3])
            pitch = min(
                (p for p in range(57, 85) if p % 12 in wanted),
                key=lambda p, goal=goal: abs(p - goal),  # type: ignore[misc]
            )
            melody.append((start, length * rng.uniform(0.6, 0.98), pitch))
    return melody


def _rhythm(rng: Random, n_beats: int) -> list[tuple[float, float]]:
    """Draw onsets and lengths that fill a cell of `n_beats`."""
    lengths = rng.choice([(0.5, 0.5, 1, 1, 2), (0.25, 0.25, 0.5, 0.5, 1), (0.5, 1, 1.5), (1, 2)])
    cell, at = [], rng.choice([0.0, 0.0, 0.0, 0.5])
    while at < n_beats:
        length = min(rng.choice(lengths), n_beats - at)
        cell.append((at, float(length)))
        at += length
    return cell
