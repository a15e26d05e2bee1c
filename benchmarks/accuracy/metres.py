"""Metres, and what makes bars hard, rendered on sounds that training does not use.

`python -m benchmarks.accuracy.metres` fetches the sounds and renders into ``$AFA_EVAL_METRES``
(default: ``afa-metres`` in ``~/.cache``): 40 s of each clip as ``<kind>_<number>.wav``, and
``annotations.json``. The pieces are the training generators', from other seeds.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from benchmarks.evaluation_set import Setting, ask_for_nothing
from models.rhythm.network import SAMPLE_RATE
from pipelines.training.assets import fetch_packages
from pipelines.training.clips import TRIES
from pipelines.training.music.bands import BASS, LEAD, STYLES, Style, in_style
from pipelines.training.music.classical import classical
from pipelines.training.music.performance import Performance, perform
from pipelines.training.music.score import (
    CLOSED_HAT,
    DRUMS,
    KICK,
    RIDE,
    SNARE,
    Note,
    Piece,
    UnusableError,
)
from pipelines.training.sound.mix import Instruments, render_mix

KIND = "metres"
LENGTH_S = 40.0
PACKAGES = ("csound-soundfont", "hydrogen-drumkits", "hydrogen-data")
FONT = "usr/share/sounds/sf2/sf_GMbank.sf2"
KITS = "usr/share/hydrogen/data/drumkits"
KIT_NAMES = ("ForzeeStereo", "VariBreaks", "circAfrique v4")

_FOURS = ("rock", "pop", "ballad", "metal", "funk", "disco", "country", "reggae")
_FIRST_SEED = 50_000_000
_INTRO_S, _INTRO_LEVEL = 10.0, 0.3
_CUT_AT_S, _SPLICE = 18.0, 220
_LEAST_RUBATO = 0.05
"""Standard deviation of the beats' lengths over their mean."""

_SIX = Style((150, 0.15), (6,), 4, (0.1, 0.0, 0.0), ("half",), ("root", "beat"),
             ("arp", "beat", "pad"), (CLOSED_HAT, RIDE))  # fmt: skip
"""6/8 counted in six; counted in two, it is the bands' ``six_eight``."""


def _in_metre(beats: int, *names: str) -> Callable[[Random], Piece]:
    def draw(rng: Random) -> Piece:
        name = rng.choice(names)
        style = STYLES.get(name, _SIX)
        return in_style(rng, name, replace(style, metres=(beats,)), LENGTH_S)

    return draw


def _pickup(rng: Random) -> Piece:
    """Let a tune begin one or two beats before the first bar line."""
    piece = _in_metre(rng.choice([3, 4]), *_FOURS)(rng)
    first = piece.downbeats[1]
    begin = first - rng.choice([1.0, 1.5, 2.0])
    scale = (0, 2, 3 if (piece.key or 0) >= 12 else 4, 7)
    tune = [
        Note(at, at + 0.45, LEAD, 60 + (piece.key or 0) % 12 + rng.choice(scale), 100)
        for at in np.arange(begin, first, 0.5)
    ]
    return replace(
        piece,
        notes=[*tune, *(note for note in piece.notes if note.start >= first)],
        beats=[beat for beat in piece.beats if beat >= begin],
        downbeats=piece.downbeats[1:],
    )


def _quiet_intro(rng: Random) -> Piece:
    """Let chords begin alone and softly."""
    piece = _in_metre(4, *_FOURS)(rng)
    entry = next(bar for bar in piece.downbeats if bar * 60 / piece.tempo >= _INTRO_S)
    notes = [
        note
        if note.start >= entry
        else note._replace(velocity=max(1, int(note.velocity * _INTRO_LEVEL)))
        for note in piece.notes
        if note.start >= entry or note.channel not in {DRUMS, BASS}
    ]
    return replace(piece, notes=notes)


def _with_feel(is_double: bool) -> Callable[[Random], Piece]:
    """Let the drums play at half or twice the speed of the rest from 15 s on."""

    def draw(rng: Random) -> Piece:
        piece = _in_metre(4, "rock", "pop", "ballad", "metal")(rng)
        turn = next(bar for bar in piece.downbeats if bar * 60 / piece.tempo >= LENGTH_S * 0.4)
        others = [note for note in piece.notes if note.channel != DRUMS or note.start < turn]
        places = (
            [(KICK, beat) for beat in range(4)] + [(SNARE, beat + 0.5) for beat in range(4)]
            if is_double
            else [(KICK, 0.0), (KICK, 1.5), (SNARE, 2.0)]
        )
        hats = [(CLOSED_HAT, beat * (0.5 if is_double else 1.0)) for beat in range(8)]
        drums = [
            Note(bar + at, bar + at + 0.2, DRUMS, drum, 75 if drum == CLOSED_HAT else 110)
            for bar in piece.downbeats
            for drum, at in (*places, *hats)
            if bar >= turn and at < 4
        ]
        return replace(piece, notes=[*others, *drums])

    return draw


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a kind of clip is made.

    Attributes:
        draw: Invents a piece.
        n_clips: Number of clips.
        is_from_start: Whether the clip begins where the piece does, instead of anywhere.
        needs_drums: Whether performances without drums are refused.
    """

    draw: Callable[[Random], Piece]
    n_clips: int = 10
    is_from_start: bool = True
    needs_drums: bool = False


RECIPES = {
    "two": Recipe(_in_metre(2, "polka", "march", "country"), 15, False),
    "three": Recipe(_in_metre(3, "waltz", "jazz_waltz", "rock_waltz"), 15, False),
    "four": Recipe(_in_metre(4, *_FOURS), 15, False),
    "five": Recipe(_in_metre(5, "five_four", "swing", "ballad"), 15, False),
    "six": Recipe(_in_metre(6, "six"), 15, False),
    "six-eight": Recipe(_in_metre(2, "six_eight"), 15, False),
    "seven": Recipe(_in_metre(7, "seven_four", "rock", "ballad"), 15, False),
    "anacrusis": Recipe(_pickup),
    "quiet-intro": Recipe(_quiet_intro),
    "edit": Recipe(_in_metre(4, *_FOURS)),
    "half-time": Recipe(_with_feel(is_double=False), needs_drums=True),
    "double-time": Recipe(_with_feel(is_double=True), needs_drums=True),
    "swing": Recipe(_in_metre(4, "swing", "shuffle", "boogie"), is_from_start=False),
    "rubato": Recipe(lambda rng: classical(rng, LENGTH_S)),
}


def build(folder: Path) -> dict[str, Any]:
    """Render the clips into a folder; return their annotations."""
    root = fetch_packages(PACKAGES, folder / "packages")
    instruments = Instruments(
        [root / FONT], [root / FONT], root / KITS, KIT_NAMES, has_synthesis=False
    )
    found = {}
    for kind, recipe in RECIPES.items():
        for number in range(recipe.n_clips):
            name = f"{kind}_{number:02}"
            samples, found[name] = _clip(kind, recipe, number, instruments)
            soundfile.write(folder / f"{name}.wav", samples, SAMPLE_RATE)
    (folder / "annotations.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _clip(
    kind: str, recipe: Recipe, number: int, instruments: Instruments
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    rng = Random(f"{kind} {_FIRST_SEED + number}")  # noqa: S311
    noise = np.random.default_rng(_FIRST_SEED + number)
    for _ in range(TRIES):
        try:
            piece = recipe.draw(rng)
            performance = perform(piece, rng, LENGTH_S, _first(recipe, piece))
        except UnusableError:
            continue
        if is_fit(kind, recipe, performance):
            break
    else:
        raise UnusableError(f"{kind} {number}")
    samples = render_mix(piece, performance, instruments, LENGTH_S, rng, noise)
    samples = np.asarray(samples / np.abs(samples).max() * 0.9, dtype=np.float32)
    beats, downbeats = performance.beats, performance.downbeats
    if kind == "edit":
        beat_s = 60 / piece.tempo
        gap = (_CUT_AT_S, _CUT_AT_S + rng.uniform(0.3, 3.7) * beat_s)
        samples, (beats, downbeats) = cut(samples, (beats, downbeats), gap)
    return samples, {
        "kind": KIND,
        "style": piece.label,
        "tempo": round(float(60 / np.median(np.diff(beats))), 3),
        "tempo_level": "sure",
        "time_signature": beats_in_bar(piece),
        "beats": np.round(beats, 4).tolist(),
        "downbeats": np.round(downbeats, 4).tolist(),
    }


def _first(recipe: Recipe, piece: Piece) -> float | None:
    """Beat at which a clip begins: the first note's, so that silence does not reveal it."""
    return min(note.start for note in piece.notes) if recipe.is_from_start else None


def is_fit(kind: str, recipe: Recipe, performance: Performance) -> bool:
    """Return whether a performance has the property that defines its kind."""
    if recipe.needs_drums and all(note.channel != DRUMS for note in performance.notes):
        return False
    steps = np.diff(performance.beats)
    return kind != "rubato" or float(steps.std() / steps.mean()) >= _LEAST_RUBATO


def beats_in_bar(piece: Piece) -> int:
    """Count the beats of a piece's usual bar."""
    return round(float(np.median(np.diff(piece.downbeats)) / np.median(np.diff(piece.beats))))


def cut(
    samples: NDArray[np.float32],
    events: Sequence[NDArray[np.float64]],
    gap: tuple[float, float],
) -> tuple[NDArray[np.float32], list[NDArray[np.float64]]]:
    """Cut out a stretch, in seconds, and close the gap with a 10 ms cross-fade."""
    first, last = (round(at * SAMPLE_RATE) for at in gap)
    fade = np.linspace(0.0, 1.0, _SPLICE, dtype=np.float32)
    seam = samples[first : first + _SPLICE] * (1 - fade) + samples[last : last + _SPLICE] * fade
    joined = np.concatenate([samples[:first], seam, samples[last + _SPLICE :]])
    length_s = gap[1] - gap[0]
    moved = [
        np.concatenate([times[times < gap[0]], times[times >= gap[1]] - length_s])
        for times in events
    ]
    return joined, moved


if __name__ == "__main__":
    ask_for_nothing("benchmarks.accuracy.metres", __doc__ or "")
    build(Setting().metres)
