"""Four short piano pieces of our own (a prelude, a waltz, a rag, a study) as MIDI files."""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

_TICKS = 480


@dataclass(frozen=True, slots=True)
class Piece:
    """Notes as (beat, beats long, MIDI pitch, velocity)."""

    tempo: int
    notes: list[tuple[float, float, int, int]] = field(default_factory=list)


def _prelude(rng: random.Random) -> Piece:
    piece = Piece(72)
    chords = [(48, 4, 7), (50, 3, 8), (47, 3, 8), (48, 4, 7), (45, 3, 7), (50, 4, 7), (43, 4, 7)]
    for bar in range(28):
        root, third, fifth = chords[bar % 7]
        tones = (root, root + third, root + fifth, root + 12, root + 12 + third)
        for i, tone in enumerate((0, 1, 2, 3, 4, 2, 3, 4)):
            length = 2 - i * 0.25 if tone < 2 and i < 2 else 0.25
            piece.notes.append((bar * 2 + i * 0.25, length, tones[tone], rng.randint(55, 80)))
    return piece


def _waltz(rng: random.Random) -> Piece:
    piece, step = Piece(96), 9
    scale = [57, 59, 60, 62, 64, 65, 67, 69, 71, 72, 74, 76, 77, 79, 81]
    bars = [(45, 3), (50, 3), (43, 4), (48, 4), (41, 4), (50, 3), (40, 4), (45, 3)] * 3
    for bar, (root, third) in enumerate(bars):
        at = 3.0 * bar
        piece.notes.append((at, 3, root - 12, rng.randint(50, 70)))
        for beat in (1, 2):
            for interval in (12, 12 + third, 19):
                piece.notes.append((at + beat, 0.9, root + interval, rng.randint(38, 55)))
        for beat in range(3):
            step = max(3, min(14, step + rng.choice([-2, -1, -1, 1, 1, 2])))
            late = rng.choice([0, 0, 0.5])
            piece.notes.append((at + beat + late, 1.2, scale[step] + 12, rng.randint(60, 90)))
    return piece


def _rag(rng: random.Random) -> Piece:
    piece = Piece(100)
    for bar, root in enumerate((48, 48, 53, 48, 43, 43, 48, 48) * 4):
        at = 2.0 * bar
        for beat, bass in enumerate((root - 12, root - 5)):
            piece.notes.append((at + beat, 0.45, bass, 85))
            piece.notes.extend((at + beat + 0.5, 0.4, root + tone, 75) for tone in (12, 16, 19))
        for late in (0, 0.25, 0.75, 1, 1.25, 1.75):
            tone = root + 24 + rng.choice([0, 2, 4, 7, 9, 12])
            piece.notes.append((at + late, 0.4, tone, rng.randint(85, 110)))
    return piece


def _study(rng: random.Random) -> Piece:
    piece = Piece(132)
    bars = [(45, 3), (41, 4), (48, 4), (43, 4), (45, 3), (50, 3), (40, 4), (45, 3)] * 4
    for bar, (root, third) in enumerate(bars):
        at = 4.0 * bar
        piece.notes.extend(((at, 4, root - 12, 100), (at, 4, root, 95)))
        for i in range(16):
            tone = root + (12, 12 + third, 19, 24)[i % 4] + (12 if i > 7 else 0)
            piece.notes.append((at + i * 0.25, 0.3, tone, rng.randint(90, 120)))
    return piece


_COMPOSERS: dict[str, Callable[[random.Random], Piece]] = {
    "prelude": _prelude,
    "waltz": _waltz,
    "rag": _rag,
    "study": _study,
}
PIECES = {name: compose(random.Random(name)) for name, compose in _COMPOSERS.items()}  # noqa: S311


def as_midi(piece: Piece) -> bytes:
    """Write a standard MIDI file of format 0, on the grand piano."""
    events: list[tuple[int, int, int, int]] = []
    for beat, length, pitch, velocity in piece.notes:
        events.append((round(beat * _TICKS), 1, pitch, velocity))
        events.append((round((beat + length) * _TICKS), 0, pitch, 0))
    body = b"\0\xff\x51\x03" + struct.pack(">I", 60_000_000 // piece.tempo)[1:] + b"\0\xc0\0"
    now = 0
    for at, is_on, pitch, velocity in sorted(events):
        body += _variable(at - now) + bytes([0x90 if is_on else 0x80, pitch, velocity])
        now = at
    body += b"\0\xff\x2f\0"
    header = b"MThd" + struct.pack(">IHHH", 6, 0, 1, _TICKS)
    return header + b"MTrk" + struct.pack(">I", len(body)) + body


def _variable(number: int) -> bytes:
    groups = [number & 127]
    while number := number >> 7:
        groups.append(number & 127 | 128)
    return bytes(reversed(groups))
