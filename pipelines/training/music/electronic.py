"""Electronic music: loops, layers that enter and leave, phrases of 4 to 16 bars, breaks and drops.

Here bars are marked by structure more than by accents: chords and basses change on them, layers
enter on the first bar of a phrase, and fills, risers and impacts announce it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pipelines.training.music.harmony import Harmony, progression, tune
from pipelines.training.music.score import (
    CLAP,
    CLOSED_HAT,
    COWBELL,
    CRASH,
    EFFECTS,
    KICK,
    LOW_TOM,
    OPEN_HAT,
    RIDE,
    RIM,
    SHAKER,
    SNARE,
    TAMBOURINE,
    Note,
    Piece,
    Sheet,
    regular,
)
from pipelines.training.sound.effects import DOWNLIFTER, IMPACT, REVERSE, RISER

BASS, CHORDS, LEAD, ARP, PAD = 1, 2, 0, 3, 4
_STEPS = 16
_FOUR = ("x...x...x...x...",)
_BACKBEAT = ("....x.......x...",)
_OFFBEAT = "..x...x...x...x."
_EIGHTHS = "x.o.x.o.x.o.x.o."
_SIXTEENTHS = "xooo" * 4


@dataclass(frozen=True, slots=True)
class Style:
    """Loops of a style: a character is a sixteenth, ``x`` loud, ``o`` soft, ``?`` sometimes.

    Attributes:
        tempo: Mean BPM and its spread.
        kicks: Loops, of which one is drawn, as for the others.
        snares: Snares or claps; an empty loop means none.
        hats: Closed hi-hats, but open ones if they play only off the beat.
        basses: Basses.
        phrase: Bars in a phrase.
        swing: Maximum delay of every second sixteenth, in sixteenths.
        n_layers: Minimum number of chords, lead, arpeggio and pad in a piece.
    """

    tempo: tuple[float, float]
    kicks: Sequence[str]
    snares: Sequence[str]
    hats: Sequence[str]
    basses: Sequence[str]
    phrase: Sequence[int] = (4, 8, 8)
    swing: float = 0.0
    n_layers: int = 1


STYLES = {
    "house": Style(
        (123, 4),
        _FOUR,
        (*_BACKBEAT, *_BACKBEAT, "....x.......x..?", ""),
        (_OFFBEAT, _OFFBEAT, _EIGHTHS, _SIXTEENTHS, "o.x.o.x.o.x.o.xo"),
        (_OFFBEAT, "x..x..x...x..x..", "..xx..xx..xx..xx", "x.....x...x.....", "x..x.x..x..x.x.."),
        swing=0.3,
    ),
    "techno": Style(
        (133, 8),
        (*_FOUR, *_FOUR, "x...x...x...x.?."),
        ("", "", *_BACKBEAT, "............x...", "...?....x......?"),
        (_OFFBEAT, _OFFBEAT, _SIXTEENTHS, "x.x.x.x.x.x.x.x.", ""),
        (".xxx.xxx.xxx.xxx", "..x...x...x...x.", "x..x..x..x..x.x.", "xxxxxxxxxxxxxxxx", ""),
        phrase=(4, 8, 16),
        n_layers=0,
    ),
    "trance": Style(
        (138, 5),
        _FOUR,
        (*_BACKBEAT, ""),
        (_OFFBEAT, "o.x.o.x.o.x.o.x.", _SIXTEENTHS),
        (".xxx.xxx.xxx.xxx", "..xx..xx..xx..xx", _OFFBEAT, "xxxxxxxxxxxxxxxx"),
        phrase=(8, 8, 16),
        n_layers=2,
    ),
    "drum_and_bass": Style(
        (173, 4),
        ("x.........x.....", "x.........x.....", "x.....?...x..x..", "x..x......x....."),
        (*_BACKBEAT, "....x..o.o..x..o", "....x..o....x..o"),
        (_EIGHTHS, "x.x.x.x.x.x.x.x.", _SIXTEENTHS, "x.o.x.oox.o.x.oo"),
        ("x.........x.....", "x..x..x...x.....", "x...............", "x.x...x.x.x...x."),
        phrase=(8, 8, 16),
    ),
    "breakbeat": Style(
        (138, 14),
        ("x.x.......xx....", "x.x......xx.....", "x......x..x.....", "x..x...x..x..?.."),
        ("....x..o.o..x..o", "....x.......x...", "....x..x.x....x.", "....x..o.o....x."),
        (_EIGHTHS, _SIXTEENTHS, "x.x.x.x.x.x.x.x."),
        ("x.....x...x.....", "x..x..x.....x...", "x.x.......x.x...", "x...x...x...x..."),
        swing=0.15,
    ),
    "hip_hop": Style(
        (89, 8),
        ("x......x..x.....", "x.x.......x..?..", "x.....x..xx.....", "x..x......x....."),
        _BACKBEAT,
        (_EIGHTHS, _EIGHTHS, _SIXTEENTHS, "x.o.x.oox.o.xoo."),
        ("x.....x...x.....", "x.............x.", "x..x......x..x..", "x.........x....."),
        phrase=(4, 4, 8),
        swing=0.5,
    ),
    "half_time": Style(
        (142, 6),
        ("x.....?.........", "x.....x.......?.", "x..x............", "x.....x...?....."),
        ("........x.......", "........x......?", "........x.......", "........x..o...."),
        (_EIGHTHS, "x.x.x.x.x.x.x.x.", "x...x...x...x...", "x.oox.o.xxo.x.oo"),
        ("x...........x...", "x.....x.........", "x..x..x..x..x.x.", "x.x.x.x.xxxxx.x."),
        phrase=(4, 8, 8),
    ),
    "electro": Style(
        (124, 10),
        ("x.....x.x.......", "x...x...x..x....", "x..x......x.....", "x.....x...x....."),
        _BACKBEAT,
        (_EIGHTHS, _SIXTEENTHS, "x.x.x.x.x.x.x.x."),
        ("x.x.x.x.x.x.x.x.", "x..x..x.x..x..x.", "xxxxxxxxxxxxxxxx", "x.xx.xx.x.xx.xx."),
    ),
    "chip": Style(
        (144, 22),
        ("x.......x.......", "x..x..x.x.......", "x...x...x...x...", "x.....x.x......."),
        (*_BACKBEAT, "....x.......x.xx", ""),
        ("x.x.x.x.x.x.x.x.", _SIXTEENTHS, ""),
        ("x.x.x.x.x.x.x.x.", "x...x...x...x...", "x..x..x.x..x..x.", "xxxxxxxxxxxxxxxx"),
        phrase=(4, 4, 8),
        n_layers=2,
    ),
    "synthwave": Style(
        (108, 12),
        ("x.......x.......", *_FOUR, "x.......x.x....."),
        _BACKBEAT,
        (_EIGHTHS, "x.x.x.x.x.x.x.x.", ""),
        ("x.x.x.x.x.x.x.x.", "xxxxxxxxxxxxxxxx", "x.xxx.xxx.xxx.xx"),
        n_layers=2,
    ),
    "downtempo": Style(
        (92, 12),
        ("x.........x.....", "x..x............", "x......x........", "x...............", ""),
        ("....x.......x...", "........x.......", "", "............x..."),
        (_EIGHTHS, "..x...x...x...x.", "", "x...x...x...x..."),
        ("x...............", "x.......x.......", "x.....x...x.....", ""),
        phrase=(4, 8, 8),
        swing=0.3,
        n_layers=2,
    ),
}
_SECTIONS = {
    "intro": ("kick", "hats", "arp", "pad"),
    "groove": ("kick", "snare", "hats", "bass", "perc", "chords"),
    "main": ("kick", "snare", "hats", "bass", "perc", "chords", "lead", "arp", "pad"),
    "drop": ("kick", "snare", "hats", "bass", "perc", "chords", "lead", "arp"),
    "break": ("pad", "chords", "lead", "arp"),
    "build": ("pad", "arp", "hats", "chords", "roll"),
    "thin": ("hats", "bass", "perc", "arp"),
    "drums": ("kick", "snare", "hats", "perc"),
}
_AFTER = {
    "intro": ("groove", "groove", "main", "break"),
    "groove": ("main", "main", "break", "drop", "thin"),
    "main": ("main", "groove", "break", "build", "drums"),
    "drop": ("drop", "main", "break", "groove"),
    "break": ("build", "build", "main", "drop"),
    "build": ("drop", "drop", "main"),
    "thin": ("main", "build", "drop"),
    "drums": ("main", "drop", "groove"),
}


def electronic(rng: Random, duration_s: float) -> Piece:
    """Invent a piece of electronic music of at least `duration_s` seconds."""
    name = rng.choice(list(STYLES))
    style = STYLES[name]
    tempo = min(200.0, max(60.0, rng.gauss(*style.tempo)))
    phrase = rng.choice(style.phrase)
    n_bars = int(duration_s * tempo / 60 / 4) + 2 + phrase
    harmony = progression(rng, n_bars, holds=(1, 1, 2, 2, 4))
    sections = _arrange(rng, n_bars, phrase)
    writer = _Writer(rng, style, harmony, sections, phrase)
    writer.write()
    beats, downbeats = regular(n_bars, 4)
    programs = {
        BASS: rng.choice([33, 36, 38, 39, 87]),
        CHORDS: rng.choice([4, 5, 16, 50, 51, 62, 63, 81, 90]),
        LEAD: rng.choice([80, 81, 82, 84, 86, 87, 54, 73]),
        ARP: rng.choice([80, 81, 82, 11, 4, 98, 46]),
        PAD: rng.choice([48, 50, 88, 89, 90, 91, 94, 95]),
    }
    return Piece(
        f"electronic:{name}",
        writer.sheet.notes,
        programs,
        tempo,
        beats,
        downbeats,
        key=harmony.key if writer.is_tonal else None,
        is_electronic=True,
        voice=LEAD,
        chords=harmony.spans(4),
    )


def _arrange(rng: Random, n_bars: int, phrase: int) -> list[str]:
    """Return the section name of every bar; sections last a phrase."""
    section = rng.choice(["intro", "groove", "main", "main", "drop", "drums", "break"])
    bars: list[str] = []
    while len(bars) < n_bars:
        bars += [section] * phrase
        section = rng.choice(_AFTER[section])
    return bars[:n_bars]


class _Writer:
    """Writes a piece bar by bar from loops drawn once."""

    def __init__(
        self, rng: Random, style: Style, harmony: Harmony, sections: list[str], phrase: int
    ) -> None:
        self.sheet = Sheet()
        self._rng, self._style, self._harmony = rng, style, harmony
        self._sections, self._phrase = sections, phrase
        self._swing = rng.uniform(0, style.swing) if rng.random() < 0.6 else 0.0
        draw = rng.choice
        self._kick, self._snare = draw(style.kicks), draw(style.snares)
        self._hats, self._bass = draw(style.hats), draw(style.basses)
        self._perc = "".join(draw("x...o...?...") for _ in range(_STEPS))
        self._perc_drum = draw([RIM, SHAKER, COWBELL, TAMBOURINE, LOW_TOM, RIDE])
        self._snare_drum = draw([SNARE, CLAP])
        hat_is_open = all(c == "." for c in self._hats[::4]) and rng.random() < 0.7
        self._hat_drum = OPEN_HAT if hat_is_open else CLOSED_HAT
        self._stabs = draw(
            [
                "x..x..x...x.....",
                "..x...x...x...x.",
                "x...............",
                "...x..x....x..x.",
                "x.......x.......",
                "x..x..x..x..x.x.",
                "....x.......x...",
            ]
        )
        self._bass_moves = [draw([0, 0, 0, 12, 7, 0, 0]) for _ in range(_STEPS)]
        self._arp = [draw(range(6)) for _ in range(draw([3, 4, 6, 8, 8, 16, 16]))]
        self._arp_step = draw([1, 1, 2, 2, 3])
        optional = ["chords", "lead", "arp", "pad"]
        rng.shuffle(optional)
        n_optional = rng.randint(style.n_layers, 4)
        self._layers = {"kick", "snare", "hats", "bass", "perc", "roll", *optional[:n_optional]}
        if rng.random() < 0.3:
            self._layers.discard("perc")
        if rng.random() < 0.12:
            self._layers -= {"kick", "snare", "hats", "perc"}
        if not {"chords", "lead", "arp", "pad"} & self._layers and not self._bass.strip("."):
            self._layers |= {"kick", "hats", "perc"}
        self.is_tonal = bool({"chords", "arp", "pad"} & self._layers)
        self._fills = rng.random()
        self._effects = rng.random()
        self._ends_silent = rng.random() < 0.3
        self._lead = self._make_lead()

    def write(self) -> None:
        """Write all bars."""
        for bar, section in enumerate(self._sections):
            active = self._layers.intersection(_SECTIONS[section])
            if not active - {"roll"}:
                active = self._layers & {"kick", "hats", "bass", "arp", "pad"} or self._layers
            is_last = (bar + 1) % self._phrase == 0
            self._drums(bar, active, is_last, section)
            self._bass_line(bar, active, is_last)
            self._harmonies(bar, active)
            self._announce(bar, section, is_last)
            if "lead" in active:
                self.sheet.notes += [note for note in self._lead if bar <= note.start / 4 < bar + 1]

    def _time(self, bar: int, step: float) -> float:
        delay = self._swing if step % 2 == 1 else 0.0
        return bar * 4 + (step + delay) / 4

    def _loop(self, bar: int, loop: str, drum: int, loudness: int) -> None:
        for step, sign in enumerate(loop):
            if sign == "." or (sign == "?" and self._rng.random() < 0.5):
                continue
            velocity = loudness if sign == "x" else int(loudness * 0.65)
            self.sheet.hit(self._time(bar, step), drum, velocity + self._rng.randint(-5, 5))

    def _drums(self, bar: int, active: set[str], is_last: bool, section: str) -> None:
        rng = self._rng
        has_fill = is_last and rng.random() < self._fills
        start = rng.choice([8, 12, 12, 14]) if has_fill else _STEPS
        kick = self._kick[:start]
        if is_last and self._ends_silent:
            kick = self._kick[: rng.choice([8, 12])]
        if "kick" in active:
            self._loop(bar, kick, KICK, 112)
        if "snare" in active:
            self._loop(bar, self._snare[:start], self._snare_drum, 105)
        if "hats" in active:
            self._loop(bar, self._hats, self._hat_drum, 82)
        if "perc" in active:
            self._loop(bar, self._perc, self._perc_drum, 75)
        if has_fill and {"kick", "snare"} & active:
            for step in range(start, _STEPS):
                if rng.random() < 0.7:
                    self.sheet.hit(self._time(bar, step), self._snare_drum, rng.randint(70, 115))
        if section == "build" and "roll" in active:
            self._roll(bar)

    def _roll(self, bar: int) -> None:
        """Play a roll that gets faster and louder up to the phrase's end."""
        left = self._phrase - bar % self._phrase
        every = 4 if left > 4 else 2 if left > 2 else 1
        for step in range(0, _STEPS, every):
            progress = (bar % self._phrase + step / _STEPS) / self._phrase
            self.sheet.hit(self._time(bar, step), self._snare_drum, int(45 + 70 * progress))

    def _bass_line(self, bar: int, active: set[str], is_last: bool) -> None:
        if "bass" not in active:
            return
        root = 28 + (self._harmony.root(bar) - 4) % 12
        steps = [i for i, sign in enumerate(self._bass) if sign != "."]
        for i, step in enumerate(steps):
            if is_last and self._ends_silent and step >= 12:
                break
            until = steps[i + 1] if i + 1 < len(steps) else _STEPS
            length = min(until - step, 8) / 4 * 0.9
            pitch = root + (self._bass_moves[step] if step else 0)
            self.sheet.add(
                self._time(bar, step), length, BASS, (pitch,), self._rng.randint(92, 108)
            )

    def _harmonies(self, bar: int, active: set[str]) -> None:
        pitches = self._harmony.pitches(bar, 52)
        if "pad" in active:
            is_new = bar == 0 or pitches != self._harmony.pitches(bar - 1, 52)
            if is_new or bar % self._phrase == 0 or self._rng.random() < 0.5:
                self.sheet.add(bar * 4, 3.97, PAD, pitches, 72)
            else:
                # A held chord sounds almost continuously, with a tiny gap after the previous bar.
                self.sheet.add(bar * 4 + 0.02, 3.95, PAD, pitches, 60)
        if "chords" in active:
            for step, sign in enumerate(self._stabs):
                if sign == "x":
                    self.sheet.add(self._time(bar, step), 0.4, CHORDS, pitches, 90)
        if "arp" in active:
            ladder = [*pitches, *(pitch + 12 for pitch in pitches)]
            first = bar * _STEPS // self._arp_step if self._arp_step == 3 else 0
            for i, step in enumerate(range(0, _STEPS, self._arp_step)):
                pitch = ladder[self._arp[(first + i) % len(self._arp)] % len(ladder)] + 12
                self.sheet.add(self._time(bar, step), 0.22, ARP, (pitch,), 80)

    def _announce(self, bar: int, section: str, is_last: bool) -> None:
        """Mark the ends and starts of phrases with effects."""
        rng = self._rng
        if bar % self._phrase == 0 and bar:
            if rng.random() < self._effects:
                self.sheet.hit(bar * 4, CRASH, rng.randint(85, 115))
            if rng.random() < self._effects * 0.5:
                effect = rng.choice([IMPACT, DOWNLIFTER])
                self.sheet.add(bar * 4, 4.0, EFFECTS, (effect,), 90)
        if is_last and rng.random() < self._effects * (0.9 if section == "build" else 0.4):
            n_beats = rng.choice([4, 4, 8, 16])
            start = max(0.0, (bar + 1) * 4.0 - n_beats)
            effect = RISER if rng.random() < 0.7 else REVERSE
            self.sheet.add(start, (bar + 1) * 4 - start, EFFECTS, (effect,), 85)

    def _make_lead(self) -> list[Note]:
        bars = range(len(self._sections))
        if "lead" not in self._layers:
            return []
        if self._rng.random() < 0.5:  # A riff, the same in every cell.
            return self._riff()
        notes = tune(self._rng, self._harmony, bars, 4, self._rng.uniform(0.6, 1.0))
        return [Note(at, at + length, LEAD, pitch, 92) for at, length, pitch in notes]

    def _riff(self) -> list[Note]:
        cell = tune(self._rng, self._harmony, range(self._rng.choice([1, 2, 2, 4])), 4, 0.9)
        if not cell:
            return []
        n_bars = int(max(at for at, _, _ in cell) // 4) + 1
        return [
            Note(at + 4 * first, at + 4 * first + length, LEAD, pitch, 92)
            for first in range(0, len(self._sections), n_bars)
            for at, length, pitch in cell
        ]
