"""Music before it sounds: notes in beats, bars and a key.

Everything that labels are made from is exact here; later steps move notes and labels by the same
function of time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

DRUMS = 9
"""The drum channel, as in General MIDI."""
EFFECTS = 16
"""The channel of `pipelines.training.sound.effects`: risers, impacts; the pitch selects one."""

KICK, SNARE, CLAP, RIM = 36, 38, 39, 37
CLOSED_HAT, PEDAL_HAT, OPEN_HAT = 42, 44, 46
CRASH, RIDE, RIDE_BELL = 49, 51, 53
HIGH_TOM, MID_TOM, LOW_TOM = 50, 47, 43
TAMBOURINE, COWBELL, SHAKER, CLAVES = 54, 56, 70, 75
HIGH_CONGA, LOW_CONGA = 63, 64


class Note(NamedTuple):
    """A note; times in beats (in seconds once performed), velocity 1 to 127."""

    start: float
    end: float
    channel: int
    pitch: int
    velocity: int


class ChordSpan(NamedTuple):
    """A chord of the score; times in beats (in seconds once performed).

    Attributes:
        start: Its beginning.
        end: Its end.
        root: Pitch class.
        tones: Semitones above the root.
    """

    start: float
    end: float
    root: int
    tones: Sequence[int]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of music with its truth.

    Attributes:
        label: ``kind:style``, for the statistics.
        notes: In any order.
        programs: General MIDI program of each channel.
        tempo: BPM of the beat.
        beats: Positions of all beats, in beats, ascending.
        downbeats: Positions of the first beats of bars, ascending.
        key: Tonic's pitch class, plus 12 for minor; None if unknown.
        is_electronic: Whether it is made for machines: steady, played by synthesisers.
        is_expressive: Whether it may be played with rubato.
        distorted: Channels of distorted guitars.
        voice: Channel that may be sung.
        chords: Ascending, if known.
    """

    label: str
    notes: Sequence[Note]
    programs: dict[int, int]
    tempo: float
    beats: Sequence[float]
    downbeats: Sequence[float]
    key: int | None = None
    is_electronic: bool = False
    is_expressive: bool = False
    distorted: frozenset[int] = frozenset()
    voice: int | None = None
    chords: Sequence[ChordSpan] = ()

    def __post_init__(self) -> None:
        if not self.notes:
            raise ValueError(f"{self.label} has no notes")


class UnusableError(Exception):
    """A source produced nothing that can be labelled; the next seed may."""


@dataclass(slots=True)
class Sheet:
    """Notes being written bar by bar."""

    notes: list[Note] = field(default_factory=list)

    def add(
        self, start: float, length: float, channel: int, pitches: Iterable[int], velocity: int
    ) -> None:
        """Write a chord, or a single note as a chord of one."""
        loud = min(127, max(1, velocity))
        self.notes += [
            Note(start, start + length, channel, pitch, loud) for pitch in pitches if pitch < 128
        ]

    def hit(self, start: float, drum: int, velocity: int) -> None:
        """Write a drum stroke."""
        self.add(start, 0.2, DRUMS, (drum,), velocity)


def regular(n_bars: int, beats_per_bar: int) -> tuple[list[float], list[float]]:
    """Return beats and downbeats of equal bars."""
    beats = [float(i) for i in range(n_bars * beats_per_bar)]
    return beats, beats[::beats_per_bar]
