"""Classical textures: voices over accompaniment figures, imitation, chorales, with free timing."""

from collections.abc import Sequence
from random import Random

from pipelines.training.music.harmony import Harmony, progression
from pipelines.training.music.score import Note, Piece, Sheet, regular

TUNE, LEFT_HAND = 0, 1
_TEXTURES = ("alberti", "arpeggio", "waltz", "block", "fugue", "fugue", "broken", "chorale",
             "chorale", "stride", "tremolo", "nocturne", "none")  # fmt: skip
_ENSEMBLES = (
    (40, 41, 42, 42, 42), (48,) * 5, (44, 44, 48, 48, 48), (19,) * 5, (73, 68, 71, 70, 70),
    (24,) * 5, (6,) * 5, (46,) * 5, (56, 57, 58, 58, 58), (52,) * 5, (40, 0, 0, 0, 0),
    (73, 46, 46, 46, 46), (42, 0, 0, 0, 0),
)  # fmt: skip
_RANGES = ((60, 84), (52, 74), (43, 65), (36, 57))


def classical(rng: Random, duration_s: float) -> Piece:
    """Invent a classical piece of at least `duration_s` seconds."""
    is_compound = rng.random() < 0.28
    n = rng.choices([4, 3, 2], [0.45, 0.32, 0.23])[0]
    if is_compound and n == 4 and rng.random() < 0.5:
        n = 2
    tempo = min(190.0, max(40.0, 88 * 2 ** rng.gauss(0, 0.5)))
    n_bars = int(duration_s * tempo / 60 / n) + 6
    harmony = progression(rng, n_bars)
    texture = rng.choice(_TEXTURES)
    writer = _Writer(rng, harmony, n, is_compound, tempo)
    if texture == "fugue":
        for voice in range(rng.choice([2, 3, 3, 4])):
            writer.voice(voice, *_RANGES[voice], rng.uniform(0.7, 1.0))
    else:
        writer.voice(TUNE, 60, 88, rng.uniform(0.75, 1.0))
        if rng.random() < 0.35:
            writer.double(rng.choice([3, 4, 12]))
        for bar in range(n_bars):
            writer.accompany(bar, texture)
    notes = writer.sheet.notes
    pickup = rng.choice([0, 0, 0, 1]) if n > 1 else 0
    beats, downbeats = regular(n_bars, n)
    if pickup:  # The piece begins before its first bar line.
        notes = [note for note in notes if note.start >= n - pickup]
        beats = [beat for beat in beats if beat >= n - pickup]
        downbeats = [beat for beat in downbeats if beat >= n - pickup]
    if rng.random() < 0.3:
        notes = [_accented(note, n) for note in notes]
    ensemble = (0,) * 5 if rng.random() < 0.55 else rng.choice(_ENSEMBLES)
    return Piece(
        f"classical:{texture}",
        notes,
        dict(enumerate(ensemble)),
        tempo,
        beats,
        downbeats,
        key=harmony.key,
        is_expressive=True,
        voice=TUNE,
        chords=harmony.spans(n),
    )


def _accented(note: Note, n: int) -> Note:
    is_first = abs(note.start % n) < 1e-3
    return note._replace(velocity=min(127, int(note.velocity * 1.12))) if is_first else note


class _Writer:
    def __init__(
        self, rng: Random, harmony: Harmony, n: int, is_compound: bool, tempo: float
    ) -> None:
        self.sheet = Sheet()
        self._rng, self._harmony, self._n = rng, harmony, n
        self._n_bars = len(harmony.chords)
        self._is_compound = is_compound
        self._unit = 1 / 3 if is_compound else 0.25 if tempo < 110 else 0.5
        if is_compound:
            self._lengths: Sequence[float] = (1 / 3, 1 / 3, 2 / 3, 1, 1, 2)
        else:
            self._lengths = rng.choice(
                [(0.5, 0.5, 1, 1, 2), (0.25, 0.25, 0.5, 0.5, 1), (0.5, 1, 1, 1.5),
                 (1, 1, 2, 0.5), (0.25, 0.25, 0.25, 0.5), (1, 1, 1, 2)]
            )  # fmt: skip

    def voice(self, channel: int, low: int, high: int, density: float) -> None:
        """Write a voice whose rhythm repeats."""
        rng, n = self._rng, self._n
        cell = self._cell(max(1, rng.choice([1, 2, 4])) * n)
        total = self._n_bars * n
        pitch = rng.randrange(low + 4, high - 4)
        at = 0.0
        while at < total - 1e-6:
            lengths = cell if rng.random() < 0.8 else [1.0] * round(sum(cell))
            for length in lengths:
                if at >= total - 1e-6:
                    break
                pitch = self._next(pitch, at, low, high)
                if rng.random() < density:
                    accent = 8 if at % 1 < 1e-3 and rng.random() < 0.5 else 0
                    velocity = rng.randint(62, 90) + accent
                    self.sheet.add(at, length * 0.97, channel, (pitch,), velocity)
                at = round(at + length, 6)

    def _cell(self, n_beats: int) -> list[float]:
        cell, at = [], 0.0
        while at < n_beats - 1e-6:
            length = float(min(self._rng.choice(self._lengths), n_beats - at))
            inside = at % 1
            # Mostly end on the beat.
            if inside > 1e-3 and inside + length > 1 and self._rng.random() < 0.75:
                length = 1 - inside
            cell.append(length)
            at = round(at + length, 6)  # Thirds must add up to beats.
        return cell

    def _next(self, pitch: int, at: float, low: int, high: int) -> int:
        rng, harmony = self._rng, self._harmony
        bar = min(self._n_bars - 1, int((at + 1e-6) // self._n))
        is_strong = abs(at % 1) < 1e-3
        wanted = set(harmony.scale)
        if is_strong and rng.random() < 0.75:
            wanted = {(harmony.root(bar) + tone) % 12 for tone in harmony.chords[bar].tones}
        goal = pitch + rng.choice([-2, -1, -1, 1, 1, 2, 3, -4])
        fitting = [p for p in range(low, high) if p % 12 in wanted]
        return min(fitting, key=lambda p: abs(p - goal) + rng.random())

    def double(self, below: int) -> None:
        """Double most of the tune some semitones below."""
        self.sheet.notes += [
            note._replace(pitch=note.pitch - below, velocity=note.velocity - 8)
            for note in self.sheet.notes
            if self._rng.random() < 0.7
        ]

    def accompany(self, bar: int, texture: str) -> None:
        """Write a bar of an accompaniment figure."""
        chord = self._harmony.pitches(bar, 48)
        if texture in {"alberti", "arpeggio", "nocturne"}:
            self._broken_chord(bar, texture, chord)
        elif texture in {"tremolo", "broken"}:
            self._repeated(bar, texture, chord)
        elif texture != "none":
            self._struck(bar, texture, chord)

    def _broken_chord(self, bar: int, texture: str, chord: list[int]) -> None:
        """Arpeggiate the chord; except in Alberti's figure, the bass begins the bar."""
        n, unit, start = self._n, self._unit, bar * self._n
        order = [0, 1, 2] if self._is_compound else [0, 2, 1, 2]
        bass = chord[0] - 12
        if texture != "alberti":
            chord = [*chord, chord[0] + 12, chord[1] + 12]
            order = [*range(len(chord)), *range(len(chord) - 2, 0, -1)]
        for i in range(round(n / unit)):
            is_bass = i == 0 and texture != "alberti"
            pitch = bass if is_bass else chord[order[i % len(order)]]
            length = n * 0.95 if is_bass and texture == "nocturne" else unit * 1.4
            velocity = 68 if i == 0 else 62
            self.sheet.add(start + i * unit, length, LEFT_HAND, (pitch,), velocity)

    def _repeated(self, bar: int, texture: str, chord: list[int]) -> None:
        n, unit, start = self._n, self._unit, bar * self._n
        if texture == "tremolo":
            for i in range(round(n / unit)):
                self.sheet.add(start + i * unit, unit, LEFT_HAND, chord, 55)
            return
        for beat in range(n):
            for i, pitch in enumerate(chord[: max(2, int(1 / unit))]):
                self.sheet.add(start + beat + i * unit, 0.8, LEFT_HAND, (pitch,), 62)

    def _struck(self, bar: int, texture: str, chord: list[int]) -> None:
        """Strike chords on the beats."""
        rng, n, add = self._rng, self._n, self.sheet.add
        bass = chord[0] - 12
        every = rng.choice([1, 1, 2]) if texture == "block" else 1
        for beat in range(0, n, every):
            at = bar * n + beat
            if texture == "chorale":
                for voice, pitch in enumerate([bass, *chord[:3]], start=1):
                    if beat == 0 or rng.random() < 0.8:
                        add(at, 0.97, voice, (pitch + rng.choice([0, 0, 0, 2]),), 68)
            elif texture == "waltz" and beat == 0:
                add(at, 0.9, LEFT_HAND, (bass,), 76)
            elif texture == "stride" and beat % 2 == 0:
                add(at, 0.7, LEFT_HAND, (bass + (7 if beat % 4 == 2 else 0),), 74)
            else:
                add(at, 0.9 if texture == "block" else 0.6, LEFT_HAND, chord, 60)
