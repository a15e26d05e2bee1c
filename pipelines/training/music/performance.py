"""From beats to seconds: tempo that drifts, breathes and pauses, and inexact players.

Notes and labels pass through the same map, so labels stay exact; a player's deviations from it
move only the notes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from pipelines.training.music.score import DRUMS, EFFECTS, ChordSpan, Note, Piece, UnusableError

_STEP = 0.125
"""Beats between the knots of the tempo map."""
_FEWEST_NOTES = 40
_LONGEST_LEAD_IN_S = 1.5


@dataclass(frozen=True, slots=True)
class Performance:
    """A piece as played; all times in seconds."""

    notes: Sequence[Note]
    beats: NDArray[np.float64]
    downbeats: NDArray[np.float64]
    chords: Sequence[ChordSpan] = ()


def perform(
    piece: Piece, rng: Random, duration_s: float, first: float | None = None
) -> Performance:
    """Play a piece for `duration_s` seconds.

    Args:
        piece: The piece to play.
        rng: Draws the performance.
        duration_s: Length.
        first: Beat to begin at; drawn if None.

    Raises:
        UnusableError: Hardly anything sounds in that time.
    """
    n_beats = duration_s * piece.tempo / 60 * 1.6 + 30
    seconds = tempo_map(rng, piece, n_beats)
    skipped = _beginning(rng, piece, duration_s) if first is None else first
    lead_in = rng.choice([0.0, 0.0, rng.uniform(0, _LONGEST_LEAD_IN_S)])

    def at(beats: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        return seconds(np.asarray(beats, dtype=np.float64) - skipped) + lead_in

    chosen = [note for note in _muted(rng, piece) if note.start >= skipped - 1e-6]
    if not chosen:
        raise UnusableError(f"{piece.label} is empty")
    starts, ends = at([n.start for n in chosen]), at([n.end for n in chosen])
    notes = _played(rng, piece, chosen, starts, ends, duration_s)
    if len(notes) < _FEWEST_NOTES:
        raise UnusableError(f"{piece.label} has {len(notes)} notes")
    # After the last note there is nothing to mark beats in.
    last = min(duration_s, max(note.start for note in notes) + 0.2)
    chords = [chord for chord in piece.chords if chord.end > skipped]
    firsts, ends = at([max(skipped, c.start) for c in chords]), at([c.end for c in chords])
    return Performance(
        notes,
        _within(at, piece.beats, skipped, last),
        _within(at, piece.downbeats, skipped, last),
        [
            chord._replace(start=float(first), end=float(end))
            for chord, first, end in zip(chords, firsts, ends, strict=True)
        ],
    )


def _within(
    at: Callable[[Sequence[float]], NDArray[np.float64]],
    beats: Sequence[float],
    first: float,
    last_s: float,
) -> NDArray[np.float64]:
    times = at([beat for beat in beats if beat >= first - 1e-6])
    return times[times < last_s]


def _beginning(rng: Random, piece: Piece, duration_s: float) -> float:
    """Draw where to begin: at the start, at a bar, or in between, as a clip may be cut anywhere."""
    spare = piece.beats[-1] - duration_s * piece.tempo / 60 * 1.2
    if rng.random() < (0.65 if piece.is_expressive else 0.4):
        return 0.0
    if spare <= 4:
        return rng.uniform(0.0, 12.0) if spare > -8 and not piece.is_expressive else 0.0
    if rng.random() < 0.5:
        bars = [bar for bar in piece.downbeats if bar <= spare]
        return rng.choice(bars) if bars else 0.0
    return rng.uniform(0.0, spare)


def tempo_map(
    rng: Random, piece: Piece, n_beats: float
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Draw how time passes: a map from beats (from 0) to seconds."""
    beats = np.arange(0, n_beats, _STEP)
    speed = np.ones(len(beats))
    wave = rng.random() * 2 * np.pi
    if piece.is_expressive and rng.random() < 0.6:
        speed += _rubato(rng, beats)
    elif rng.random() < (0.1 if piece.is_electronic else 0.55):
        speed += rng.uniform(0.002, 0.03) * np.sin(wave + beats / rng.uniform(10, 40))
    if rng.random() < 0.03:  # A new tempo from some bar onwards.
        change = rng.choice([0.75, 0.8, 0.9, 1.1, 1.2, 1.33])
        speed[beats >= 4 * rng.randrange(4, 16)] *= change
    seconds = np.concatenate([[0.0], np.cumsum(60 / piece.tempo * _STEP / speed[:-1])])
    if piece.is_expressive and rng.random() < 0.2:
        for _ in range(rng.randint(1, 3)):  # Fermatas: a beat waits.
            pause = int(rng.uniform(8, n_beats / 2)) + 1
            seconds[beats >= pause] += 60 / piece.tempo * rng.uniform(0.3, 1.5)
    return lambda x: np.interp(x, beats, seconds)


def _rubato(rng: Random, beats: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw relative deviations of the tempo: slow waves, phrases that breathe, a random walk."""
    period = rng.choice([4, 6, 8, 12, 16])
    swell = rng.uniform(0.02, 0.10) * np.sin(rng.random() * 6.28 + beats / rng.uniform(8, 30))
    phrase = rng.uniform(0, 0.08) * np.sin(rng.random() * 6.28 + beats * 2 * np.pi / period)
    ritardando = np.where(beats % period > period - 1.5, -rng.choice([0, 0, 0.08, 0.18]), 0.0)
    steps = np.random.default_rng(rng.randrange(2**31)).normal(0, 0.008, len(beats))
    walk = np.cumsum(steps)
    walk -= np.linspace(0, walk[-1], len(walk))
    return np.asarray(swell + phrase + ritardando + np.clip(walk, -0.12, 0.12))


def _muted(rng: Random, piece: Piece) -> list[Note]:
    """Leave some players out, drums more often than others."""
    channels = sorted({note.channel for note in piece.notes} - {EFFECTS})
    silent: set[int] = set()
    if DRUMS in channels and not piece.is_electronic and rng.random() < 0.3:
        silent.add(DRUMS)
    for channel in channels:
        if channel != DRUMS and len(channels) - len(silent) > 2 and rng.random() < 0.15:
            silent.add(channel)
    if piece.is_expressive:
        silent.clear()
    return [note for note in piece.notes if note.channel not in silent]


def _played(
    rng: Random,
    piece: Piece,
    notes: Sequence[Note],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    duration_s: float,
) -> list[Note]:
    """Give each note its time in seconds, with a player's inexactness and touch."""
    jitters = [0.0] if piece.is_electronic else [0.0, 0.003, 0.006, 0.012]
    jitter = rng.choice([0.004, 0.008, 0.015] if piece.is_expressive else jitters)
    bias = {channel: rng.gauss(0, 0.004) if jitter else 0.0 for channel in range(EFFECTS + 1)}
    touch = rng.choice([0.0, 0.05, 0.15])
    depth, swell, wave = (
        rng.choice([0.0, rng.uniform(0.1, 0.35)]),
        rng.uniform(0.1, 0.6),
        rng.random(),
    )
    chord_roll = rng.choice([0.0, 0.0, rng.uniform(0.004, 0.03)]) if piece.is_expressive else 0.0
    played: list[Note] = []
    before, order = -1.0, 0
    for i in np.lexsort((np.array([note.pitch for note in notes]), starts)):
        note, start = notes[i], float(starts[i])
        if start >= duration_s:
            break
        order = order + 1 if start - before < 1e-6 else 0
        before = start
        late = bias[note.channel] + (rng.gauss(0, jitter) if jitter else 0.0) + order * chord_roll
        loud = 1 + rng.uniform(-touch, touch)
        if piece.is_expressive:
            loud += depth * np.sin(start * swell + 6.28 * wave)
        velocity = int(min(127, max(15, note.velocity * loud)))
        begin = max(0.0, start + late)
        played.append(
            Note(begin, max(begin + 0.03, float(ends[i])), note.channel, note.pitch, velocity)
        )
    return played
