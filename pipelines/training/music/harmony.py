"""Keys, chords and tunes for the generators."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

_MAJOR = """0 5 7 0|0 9m 5 7|0 7 9m 5|9m 5 0 7|0 4m 5 7|2m7 7 0 0|0 5 0 7|0 0 5 5m|0 10 5 0
0 9m7 2m7 7|0M7 2m7 4m7 2m7|0 3 5 0|5 7 4m 9m|0 0 7 7|0 7 5 5|9m 7 5 7|5 0 7 9m|0 2m 5 7"""
_MINOR = """0m 8 10 0m|0m 5m 7 0m|0m 10 8 7|0m 8 3 10|0m 5m 10 3|0m 0m 5m 5m|0m 10 0m 10
0m7 5m7 0m7 7|2m7b5 7 0m 0m|0m 3 5 8|0m 0m 0m 0m|0m 7 0m 7|8 10 0m 0m|0m 0m 8 10|0m 8 5m 7"""
_MAJOR_SCALE = (0, 2, 4, 5, 7, 9, 11)
_MINOR_SCALE = (0, 2, 3, 5, 7, 8, 10)


@dataclass(frozen=True, slots=True)
class Chord:
    """A chord; `degree` in semitones above the tonic, `quality` as in ``m7b5``."""

    degree: int
    quality: str

    @property
    def tones(self) -> list[int]:
        """Semitones above the chord's root."""
        third = 3 if self.quality.startswith("m") else 4
        fifth = 6 if "b5" in self.quality else 7
        if "7" not in self.quality:
            return [0, third, fifth]
        return [0, third, fifth, 11 if "M7" in self.quality else 10]


@dataclass(frozen=True, slots=True)
class Harmony:
    """A key and one chord for each bar."""

    tonic: int
    is_minor: bool
    chords: Sequence[Chord]

    @property
    def key(self) -> int:
        """Tonic's pitch class, plus 12 for minor."""
        return self.tonic + 12 * self.is_minor

    @property
    def scale(self) -> list[int]:
        """Pitch classes of the key."""
        steps = _MINOR_SCALE if self.is_minor else _MAJOR_SCALE
        return [(self.tonic + step) % 12 for step in steps]

    def root(self, bar: int) -> int:
        """Pitch class of a bar's root."""
        return (self.tonic + self.chords[bar].degree) % 12

    def pitches(self, bar: int, base: int) -> list[int]:
        """Pitches of a bar's chord, the root within the octave above `base`."""
        root = base + (self.root(bar) - base) % 12
        return [root + tone for tone in self.chords[bar].tones]


def _parse(progression: str) -> list[Chord]:
    chords = []
    for word in progression.split():
        digits = len(word) - len(word.lstrip("0123456789"))
        chords.append(Chord(int(word[:digits]), word[digits:]))
    return chords


def progression(rng: Random, n_bars: int, holds: Sequence[int] = (1, 1, 1, 2)) -> Harmony:
    """Draw a key and a chord for every bar: sections of four-bar loops, some repeated."""
    is_minor = rng.random() < 0.5
    pool = [p for line in (_MINOR if is_minor else _MAJOR).splitlines() for p in line.split("|")]
    sections = [_parse(rng.choice(pool)) for _ in range(rng.choice([1, 1, 2, 3]))]
    hold = rng.choice(holds)
    chords: list[Chord] = []
    while len(chords) < n_bars:
        for chord in rng.choice(sections) * rng.choice([1, 2, 2]):
            chords += [chord] * hold
    return Harmony(rng.randrange(12), is_minor, chords[:n_bars])


def tune(
    rng: Random, harmony: Harmony, bars: Sequence[int], beats_per_bar: int, density: float
) -> list[tuple[float, float, int]]:
    """Invent a tune over bars as (start, length, pitch), in beats; its rhythm repeats.

    Args:
        rng: Draws.
        harmony: Chords; strong beats prefer their tones.
        bars: Indices of the bars that have the tune.
        beats_per_bar: Beats.
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
