"""Bands: drums, bass, chords and a tune in many styles and metres, verse and chorus."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pipelines.training.music.harmony import progression, tune
from pipelines.training.music.score import (
    CLAP,
    CLAVES,
    CLOSED_HAT,
    COWBELL,
    CRASH,
    HIGH_CONGA,
    HIGH_TOM,
    KICK,
    LOW_CONGA,
    LOW_TOM,
    MID_TOM,
    OPEN_HAT,
    PEDAL_HAT,
    RIDE,
    RIDE_BELL,
    RIM,
    SHAKER,
    SNARE,
    TAMBOURINE,
    Note,
    Piece,
    Sheet,
    regular,
)

LEAD, BASS, CHORDS, PAD = 0, 1, 2, 3
_GUITARS, _DISTORTED = (24, 25, 26, 27, 28), (29, 30)


@dataclass(frozen=True, slots=True)
class Style:
    """How a style is played.

    Attributes:
        tempo: Median BPM and its spread (of the logarithm).
        metres: Beats in a bar, of which one is drawn.
        division: Steps per beat: 4 straight, 3 shuffled or compound.
        kicks: Probability of a kick off the first beat: on beats, on half-beats, elsewhere.
        snare: Snare patterns, see `_snares`.
        basses: Bass patterns, see `_Band.play_bass`.
        chords: Chord patterns, see `_Band.play_chords`.
        cymbals: Drums that keep time.
        is_distorted: Whether the chords' guitar may be distorted.
    """

    tempo: tuple[float, float]
    metres: Sequence[int]
    division: int
    kicks: tuple[float, float, float]
    snare: Sequence[str]
    basses: Sequence[str]
    chords: Sequence[str]
    cymbals: Sequence[int] = (CLOSED_HAT, CLOSED_HAT, RIDE, OPEN_HAT)
    is_distorted: bool = False


_ROCK_BASS = ("eighths", "eighths", "root", "sync")
STYLES = {
    "rock": Style((122, 0.2), (4,), 4, (0.3, 0.2, 0.05), ("back",), _ROCK_BASS,
                  ("eighths", "power", "riff", "beat", "pad", "arp"), is_distorted=True),
    "pop": Style((108, 0.18), (4,), 4, (0.3, 0.25, 0.1), ("back", "back", "clap"), _ROCK_BASS,
                 ("pad", "eighths", "stab", "arp", "beat")),
    "ballad": Style((72, 0.13), (4,), 4, (0.3, 0.3, 0.1), ("back", "half"), ("root", "sync"),
                    ("pad", "arp", "beat", "arp")),
    "metal": Style((142, 0.2), (4,), 4, (0.5, 0.4, 0.3), ("back", "half", "double"),
                   ("gallop", "riff", "eighths", "sixteenths"),
                   ("power", "power", "riff", "sixteenths"),
                   (RIDE, OPEN_HAT, CRASH, RIDE_BELL), is_distorted=True),
    "punk": Style((178, 0.1), (4,), 4, (0.4, 0.2, 0.0), ("back", "double"), ("eighths",),
                  ("power", "eighths"), (OPEN_HAT, RIDE, CRASH), is_distorted=True),
    "funk": Style((104, 0.13), (4,), 4, (0.25, 0.3, 0.25), ("ghost",), ("sync", "sync", "octaves"),
                  ("stab", "stab", "sixteenths")),
    "disco": Style((120, 0.07), (4,), 4, (1.0, 0.05, 0.02), ("back", "clap"),
                   ("octaves", "octaves", "sync"), ("stab", "sixteenths", "pad"),
                   (OPEN_HAT, CLOSED_HAT)),
    "reggae": Style((74, 0.12), (4,), 4, (0.05, 0.15, 0.05), ("drops", "drops", "steppers"),
                    ("sync", "sync", "root"), ("off", "off", "bubble"), (CLOSED_HAT,)),
    "fast_reggae": Style((130, 0.12), (4,), 4, (0.05, 0.1, 0.0), ("one_drop",),
                         ("sync", "sync", "root"), ("skank",), (CLOSED_HAT,)),
    "ska": Style((150, 0.12), (4,), 4, (0.3, 0.1, 0.0), ("back",), ("walk", "eighths"),
                 ("off",), (CLOSED_HAT, RIDE)),
    "country": Style((112, 0.2), (4, 4, 2), 4, (0.5, 0.1, 0.0), ("back", "train"), ("alternate",),
                     ("off", "boom_chick", "beat")),
    "polka": Style((120, 0.14), (2, 4), 4, (0.9, 0.0, 0.0), ("double",), ("alternate",),
                   ("off", "off"), (CLOSED_HAT, PEDAL_HAT)),
    "march": Style((112, 0.08), (2, 4), 4, (0.9, 0.0, 0.0), ("roll",), ("alternate",),
                   ("off", "beat"), (CRASH, PEDAL_HAT)),
    "shuffle": Style((122, 0.18), (4,), 3, (0.5, 0.0, 0.1), ("back",), ("walk", "shuffle"),
                     ("shuffle", "beat", "pad")),
    "swing": Style((160, 0.24), (4,), 3, (0.2, 0.0, 0.08), ("swing",), ("walk", "walk", "two"),
                   ("comp", "comp", "beat"), (RIDE,)),
    "boogie": Style((128, 0.2), (4,), 3, (0.5, 0.0, 0.05), ("back", "none"),
                    ("shuffle", "walk", "beat"), ("boogie", "shuffle", "boogie")),
    "delta": Style((92, 0.25), (4,), 3, (0.0, 0.0, 0.0), ("none",), ("beat", "alternate", "two"),
                   ("boogie", "triplets", "comp")),
    "slow_blues": Style((64, 0.12), (4,), 3, (0.4, 0.0, 0.1), ("back",), ("shuffle", "walk"),
                        ("triplets", "pad", "comp")),
    "latin": Style((104, 0.16), (4,), 4, (0.5, 0.3, 0.0), ("clave",), ("tumbao", "sync"),
                   ("montuno", "stab", "montuno"), (SHAKER, COWBELL)),
    "bossa": Style((124, 0.12), (4,), 4, (0.3, 0.35, 0.0), ("bossa",), ("tumbao", "alternate"),
                   ("stab", "comp"), (CLOSED_HAT, SHAKER)),
    "waltz": Style((140, 0.2), (3,), 4, (0.0, 0.0, 0.0), ("waltz",), ("root", "root", "walk"),
                   ("waltz", "waltz", "arp"), (CLOSED_HAT, RIDE, PEDAL_HAT)),
    "jazz_waltz": Style((156, 0.16), (3,), 3, (0.1, 0.0, 0.1), ("swing",), ("walk", "root"),
                        ("comp", "waltz"), (RIDE,)),
    "rock_waltz": Style((118, 0.2), (3,), 4, (0.2, 0.2, 0.0), ("back",), ("root", "eighths"),
                        ("arp", "beat", "power"), is_distorted=True),
    "six_eight": Style((62, 0.2), (2, 2, 4), 3, (0.6, 0.0, 0.15), ("half", "back"),
                       ("root", "shuffle"), ("triplets", "pad", "beat")),
    "five_four": Style((128, 0.2), (5,), 4, (0.3, 0.2, 0.05), ("five",), ("riff", "sync"),
                       ("riff", "pad", "power"), is_distorted=True),
    "seven_four": Style((136, 0.2), (7,), 4, (0.3, 0.2, 0.05), ("seven",), ("riff", "sync"),
                        ("riff", "pad", "power"), is_distorted=True),
}  # fmt: skip
_ALONE = {"drops", "steppers", "one_drop", "none", "waltz", "bossa", "clave", "swing"}
"""Snare patterns that are not a backbeat."""
_DROPS = {"drops": (1.0, 3.0), "one_drop": (2.0,), "steppers": (0.0, 1.0, 2.0, 3.0)}
"""Beats of reggae's kick; counted fast, the bar is half as long."""
_ODD = {
    "five": ((3.0,), (1.0, 3.0), (2.0, 4.0), (3.0, 4.5)),
    "seven": ((2.0, 4.0, 6.0), (1.0, 3.0, 5.0), (2.0, 5.0)),
}
_COMMON = {"rock": 5, "pop": 4, "metal": 3, "ballad": 3, "funk": 2, "swing": 4, "waltz": 2,
           "reggae": 2.5, "country": 2, "shuffle": 1.5, "slow_blues": 1.5, "rock_waltz": 1,
           "six_eight": 2, "five_four": 0.4, "seven_four": 0.3}  # fmt: skip


def band(rng: Random, duration_s: float) -> Piece:
    """Invent a band's piece of at least `duration_s` seconds."""
    names = list(STYLES)
    name = rng.choices(names, [_COMMON.get(name, 1) for name in names])[0]
    return in_style(rng, name, STYLES[name], duration_s)


def in_style(rng: Random, name: str, style: Style, duration_s: float) -> Piece:
    """Invent a piece in a style, whose name goes into its label."""
    tempo = min(212.0, max(48.0, style.tempo[0] * 2 ** rng.gauss(0, style.tempo[1] * 1.44)))
    n = rng.choice(style.metres)
    n_bars = int(duration_s * tempo / 60 / n) + 6
    harmony = progression(rng, n_bars)
    player = _Band(rng, style, n, n_bars)
    player.play_drums()
    bass, chords = rng.choice(style.basses), rng.choice(style.chords)
    for bar in range(n_bars):
        root = 28 + (harmony.root(bar) - 4) % 12
        player.play_bass(bar, bass, root, harmony.chords[bar].tones)
        player.play_chords(bar, chords, harmony.pitches(bar, 48))
        if player.has_pad:
            player.sheet.add(bar * n, n * 0.98, PAD, harmony.pitches(bar, 60), 62)
    if style.division == 4 and n % 2 == 0 and rng.random() < 0.4:
        player.push()
    if rng.random() < 0.7:
        phrases = [bar for bar in range(n_bars) if bar // player.phrase % 4 != 3]
        for at, length, pitch in tune(rng, harmony, phrases, n, rng.uniform(0.5, 1)):
            player.sheet.add(player.swung(at), length, LEAD, (pitch,), rng.randint(75, 105))
    beats, downbeats = regular(n_bars, n)
    has_guitar = style.is_distorted and rng.random() < 0.75
    programs = {
        LEAD: rng.choice([22, 25, 27, 29, 30, 40, 52, 54, 56, 57, 64, 65, 66, 73, 80, 81, 11, 0]),
        BASS: rng.choice([32, 33, 33, 34, 35, 36, 38]),
        CHORDS: rng.choice(_DISTORTED if has_guitar else (0, 1, 4, 5, 16, 18, 21, *_GUITARS)),
        PAD: rng.choice([48, 49, 50, 52, 61, 88, 89, 91, 16, 19]),
    }
    return Piece(
        f"band:{name}",
        _swing(rng, player.sheet.notes, style.division),
        programs,
        tempo,
        beats,
        downbeats,
        key=harmony.key,
        distorted=frozenset({CHORDS}) if has_guitar else frozenset(),
        voice=LEAD,
        chords=harmony.spans(n),
    )


def _swing(rng: Random, notes: Sequence[Note], division: int) -> list[Note]:
    """Delay off-beats as a band does: inexact triplets, and straight ones now and then."""
    if division == 3:
        period, off, late = 1.0, 2 / 3, rng.uniform(0.58, 0.72)
    elif rng.random() < 0.75:
        return list(notes)
    else:
        period = rng.choice([0.5, 0.5, 1.0])
        off, late = period / 2, period * rng.uniform(0.52, 0.66)

    def at(beat: float) -> float:
        whole, inside = divmod(beat, period)
        if inside <= off:
            return whole * period + inside * late / off
        return whole * period + late + (inside - off) * (period - late) / (period - off)

    return [note._replace(start=at(note.start), end=at(note.end)) for note in notes]


class _Band:
    """Players who agree on style, metre and phrases; positions are in steps of a beat."""

    def __init__(self, rng: Random, style: Style, n: int, n_bars: int) -> None:
        self.sheet = Sheet()
        self.phrase = rng.choice([4, 4, 8, 8, 6]) if n < 5 else 4
        self.has_pad = rng.random() < 0.25
        self._rng, self._style, self._n, self._n_bars = rng, style, n, n_bars
        self._half = 0.5 if style.division == 4 else 2 / 3
        self._fills, self._crashes = rng.random(), rng.random()
        grid = [i / style.division for i in range(n * style.division)]
        self._steps = grid
        self._sync = [x for x in grid if rng.random() < (0.35 if x % 1 == 0 else 0.22)]
        self._sync = sorted({0.0, *self._sync})
        self._gallop = sorted({0.0, *(x for x in grid if rng.random() < 0.6)})
        self._moves = [rng.choice([0, 0, 0, 7, 12, 10, 5]) for _ in grid]
        self._riff = [rng.choice([0, 0, 0, 3, 5, 7]) for _ in grid]

    def swung(self, beat: float) -> float:
        """Move straight half-beats to where the style plays them."""
        return beat if self._style.division == 4 or beat % 1 != 0.5 else beat + 1 / 6

    def push(self) -> None:
        """Let chords and bass enter half a beat before some bars, as bands do."""
        period = self._rng.choice([1, 2, 2, 4])
        place = self._rng.randrange(period)
        for i, note in enumerate(self.sheet.notes):
            bar, inside = divmod(note.start, self._n)
            if note.channel in {BASS, CHORDS} and inside == 0 and bar and bar % period == place:
                self.sheet.notes[i] = note._replace(start=note.start - self._half)

    def play_drums(self) -> None:
        """Play drums: two patterns for verse and chorus, fills at the ends of phrases."""
        rng = self._rng
        verse, chorus = self._pattern(), self._pattern()
        silent = rng.choice([0.0, 0.0, 0.1, 0.3])
        is_on = True
        for bar in range(self._n_bars):
            place = bar % self.phrase
            if place == 0:
                is_on = rng.random() >= silent
            if not is_on:
                continue
            hits = chorus if bar // self.phrase % 3 == 2 else verse
            if place == self.phrase - 1 and rng.random() < self._fills:
                hits = self._fill(hits)
            for at, drum, velocity in hits:
                if rng.random() < 0.985:
                    self.sheet.hit(bar * self._n + at, drum, velocity + rng.randint(-6, 6))
            if place == 0 and rng.random() < self._crashes:
                self.sheet.hit(bar * self._n, CRASH, 105)

    def _pattern(self) -> list[tuple[float, int, int]]:
        rng, style, n = self._rng, self._style, self._n
        on_beat, on_half, elsewhere = style.kicks
        kicks = {0.0}
        for x in self._steps[1:]:
            share = on_beat if x % 1 == 0 else on_half if x % 1 == self._half else elsewhere
            if rng.random() < share:
                kicks.add(x)
        snare = rng.choice(style.snare)
        if snare in _DROPS:
            kicks = {x for x in kicks if x} | set(_DROPS[snare])
        elif snare == "none":
            return [(float(b), KICK, 80) for b in range(n)] if rng.random() < 0.4 else []
        hits = [(x, KICK, 110) for x in kicks] + self._snares(snare)
        if snare == "double" and n % 2 == 0:
            hits += [(float(b), KICK, 105) for b in range(n)]
        if style.division == 4 and style.is_distorted and rng.random() < 0.15:
            hits += [(x, KICK, 95) for x in self._steps if x not in kicks]
        return hits + self._time_keeping(rng.choice(style.cymbals))

    def _time_keeping(self, cymbal: int) -> list[tuple[float, int, int]]:
        rng, n, half = self._rng, self._n, self._half
        beats = [float(b) for b in range(n)]
        if self._style.snare[0] == "swing":
            skips = [b + 2 / 3 for b in beats if b % 2 == 1 or rng.random() < 0.15]
            pedal = [(b, PEDAL_HAT, 75) for b in beats if b % 2 == 1]
            return [(b, cymbal, 85) for b in beats] + [(x, cymbal, 65) for x in skips] + pedal
        way = rng.random()
        if way < 0.55:
            return [(b, cymbal, 92) for b in beats] + [(b + half, cymbal, 68) for b in beats]
        if way < 0.75:
            return [(x, cymbal, 88 if x % 1 == 0 else 58) for x in self._steps]
        if way < 0.9:
            return [(b, cymbal, 90) for b in beats]
        return [(b + half, cymbal, 85) for b in beats]

    def _snares(self, way: str) -> list[tuple[float, int, int]]:
        rng, n = self._rng, self._n
        drum = rng.choice([SNARE, SNARE, SNARE, RIM])
        if way in _ALONE:
            return self._snares_alone(way, drum)
        back = [float(b) for b in range(1, n, 2)] if n != 3 else rng.choice([[2.0], [1.0, 2.0]])
        if way == "half":
            back = [float(n // 2)]
        elif way == "double":
            back = [b + 0.5 for b in range(n)]
        elif way in _ODD:
            back = list(rng.choice(_ODD[way]))
        hits = [(x, drum, 108) for x in back]
        if way == "clap":
            hits += [(x, CLAP, 95) for x in back]
        if way in {"train", "roll"}:
            hits += [(x, SNARE, 50) for x in self._steps if rng.random() < 0.75 and x not in back]
        if way == "ghost":
            hits += [(x, SNARE, rng.randint(30, 55)) for x in self._steps if rng.random() < 0.15]
        return hits

    def _snares_alone(self, way: str, drum: int) -> list[tuple[float, int, int]]:
        """Play what replaces the backbeat."""
        rng = self._rng
        if way in _DROPS:
            return [(x, drum, 105) for x in ((2.0,) if way == "one_drop" else (1.0, 3.0))]
        if way == "waltz":
            return [(float(b), rng.choice([drum, CLOSED_HAT]), 75) for b in range(1, self._n)]
        if way == "bossa":
            return [(x, RIM, 85) for x in rng.choice([(0, 1.5, 3.0), (0.0, 0.75, 1.5, 2.5, 3.25)])]
        if way == "clave":
            return self._percussion()
        ghosts = [x for x in self._steps if rng.random() < 0.1]
        return [(x, rng.choice([SNARE, KICK]), rng.randint(40, 75)) for x in ghosts]

    def _percussion(self) -> list[tuple[float, int, int]]:
        rng, n = self._rng, self._n
        clave = rng.choice([(0, 1.5, 3), (0, 0.75, 1.5, 2.5, 3), (0.5, 1, 2, 2.75), (0, 1.5, 2.5)])
        hits = [(float(x), rng.choice([CLAVES, COWBELL]), 90) for x in clave]
        for _ in range(6):
            drum = rng.choice([HIGH_CONGA, LOW_CONGA, HIGH_CONGA, TAMBOURINE])
            hits.append((rng.choice(range(2 * n)) / 2, drum, rng.randint(60, 105)))
        return hits

    def _fill(self, hits: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
        rng, n = self._rng, self._n
        start = rng.choice([n / 2, n - 1, n - 1, max(0, n - 2)])
        drums = sorted(rng.choice([SNARE, HIGH_TOM, MID_TOM, LOW_TOM]) for _ in range(9))[::-1]
        steps = [x for x in self._steps if x >= start and rng.random() < 0.85]
        fill = [(x, drums[i % len(drums)], rng.randint(85, 118)) for i, x in enumerate(steps)]
        return [hit for hit in hits if hit[0] < start] + fill

    def play_bass(self, bar: int, way: str, root: int, tones: Sequence[int]) -> None:
        """Play a bar's bass; `tones` are the chord's, in semitones above the root."""
        rng, n, half = self._rng, self._n, self._half
        beats = [float(b) for b in range(n)]
        line: list[tuple[float, int]]
        if way in {"eighths", "octaves"}:
            up = 12 if way == "octaves" else 0
            line = [(b + x, up * (x > 0)) for b in beats for x in (0.0, half)]
        elif way in {"sixteenths", "gallop"}:
            steps = self._steps if way == "sixteenths" else self._gallop
            line = [(x, 0) for x in steps]
        elif way in {"sync", "riff"}:
            notes = self._moves if way == "sync" else self._riff
            steps = self._sync if way == "sync" else self._gallop
            line = [(x, notes[self._steps.index(x)] if x else 0) for x in steps]
        elif way == "beat":
            line = [(b, 0) for b in beats]
        elif way == "walk":
            line = [(b, rng.choice([*tones, 2, 9]) if b else 0) for b in beats]
        elif way in {"alternate", "two"}:
            line = [(b, -5 if b % 4 == 2 else 0) for b in beats[::2]]
        elif way == "shuffle":
            line = [(b + x, rng.choice([0, 0, 4, 7])) for b in beats for x in (0.0, 2 / 3)]
        elif way == "tumbao":
            line = [(0.0, 0), (1.5, 7), (3.0, 12)] if bar % 2 else [(1.5, 7), (3.0, 0)]
            line = [(x, p) for x, p in line if x < n]
        else:
            line = [(0.0, 0)] + ([(n / 2, 0)] if n % 2 == 0 and rng.random() < 0.4 else [])
        for i, (at, move) in enumerate(line):
            until = line[i + 1][0] if i + 1 < len(line) else n
            pitch = max(24, root + move)
            self.sheet.add(bar * n + at, (until - at) * 0.9, BASS, (pitch,), rng.randint(85, 108))

    def play_chords(self, bar: int, way: str, pitches: Sequence[int]) -> None:
        """Play a bar's chord."""
        n, half, start = self._n, self._half, bar * self._n
        add = self.sheet.add
        beats = [float(b) for b in range(n)]
        if way == "pad":
            add(start, n * 0.97, CHORDS, pitches, 75)
        elif way in {"arp", "triplets"}:
            step = half if way == "arp" and self._style.division == 4 else 1 / 3
            ladder = [*pitches, pitches[0] + 12]
            for i in range(round(n / step)):
                at = start + i * step
                add(at, step * 1.5, CHORDS, (ladder[i % len(ladder)],), 84 if at % 1 < 0.01 else 74)
        elif way == "waltz":
            for beat in beats[1:]:
                add(start + beat, 0.7, CHORDS, pitches, 72)
        else:
            power = (pitches[0] - 12, pitches[0] - 5, pitches[0])
            riff = way in {"power", "riff", "gallop", "boogie"}
            for at in self._strokes(way, beats):
                accent = 12 if at % 1 == 0 else 0
                length = 0.9 if way == "beat" else 0.4
                add(start + at, length, CHORDS, power if riff else pitches, 78 + accent)

    def _strokes(self, way: str, beats: Sequence[float]) -> Sequence[float]:
        """Return the beats of a bar on which a chord is struck."""
        rng, half = self._rng, self._half
        if way == "eighths":
            return [b + x for b in beats for x in (0.0, half) if x == 0 or rng.random() < 0.8]
        if way == "sixteenths":
            return [x for x in self._steps if rng.random() < 0.8]
        if way == "shuffle":
            return [b + x for b in beats for x in (0.0, 2 / 3)]
        if way == "off":
            return [b + half for b in beats]
        if way == "bubble":
            return [x for x in self._steps if x % 1 in {0.25, 0.5}]
        if way == "boogie":
            return [b + x for b in beats for x in (0.0, 2 / 3) if x == 0 or rng.random() < 0.8]
        if way in {"boom_chick", "skank"}:
            return [b for b in beats if b % 2 == 1]
        if way in {"power", "riff", "montuno"}:
            return self._gallop
        if way in {"stab", "comp"}:
            return self._sync[1:] or [0.0]
        return beats
