"""Drums: sampled kits from Hydrogen, and kits synthesised from random parameters."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from pipelines.training.music.score import Note
from pipelines.training.sound.soundfonts import SAMPLE_RATE

_PATTERNS = (
    ("kick", r"kick|bass.?d|^bd|-bd|kik"),
    ("snare", r"snare|^sn|-sn|sd"),
    ("open", r"open|hho|ohh"),
    ("hat", r"hat|hh|closed|cls"),
    ("ride", r"ride"),
    ("crash", r"crash|cym"),
    ("tom", r"tom"),
    ("clap", r"clap|rim|stick"),
)
_INSTRUMENTS = {
    35: "kick", 36: "kick", 38: "snare", 40: "snare", 37: "clap", 39: "clap",
    42: "hat", 44: "hat", 46: "open", 49: "crash", 57: "crash", 55: "crash", 52: "crash",
    51: "ride", 53: "ride", 59: "ride", 63: "conga", 64: "conga", 62: "conga", 75: "clap",
    56: "bell", 76: "clap", 77: "clap",
}  # fmt: skip
_LONGEST_S = 1.5


@cache
def sampled_kits(folder: Path) -> dict[str, dict[str, tuple[Path, ...]]]:
    """Find the kits below Hydrogen's drum kit folder: kit → instrument → samples."""
    kits = {}
    for path in sorted(folder.iterdir()):
        kit: dict[str, list[Path]] = {}
        for sample in sorted(path.iterdir()) if path.is_dir() else ():
            if sample.suffix.lower() not in {".flac", ".wav"}:
                continue
            name = sample.name.lower()
            found = next((kind for kind, sign in _PATTERNS if re.search(sign, name)), None)
            if found:
                kit.setdefault(found, []).append(sample)
        if {"kick", "snare"} <= kit.keys():
            kits[path.name] = {kind: tuple(samples) for kind, samples in kit.items()}
    return kits


@cache
def _sample(path: Path) -> NDArray[np.float32]:
    waveform, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = waveform.mean(axis=1)[: int(_LONGEST_S * rate)]
    if len(mono) < 50:
        return np.zeros(1, dtype=np.float32)
    return np.asarray(soxr.resample(mono, rate, SAMPLE_RATE), dtype=np.float32)


def play_drums(
    notes: Sequence[Note],
    kit: dict[str, tuple[Path, ...]] | None,
    duration_s: float,
    rng: Random,
    noise: np.random.Generator,
) -> NDArray[np.float32]:
    """Render drum notes; times in seconds, pitches as in General MIDI.

    Args:
        notes: Drum notes.
        kit: Samples of each instrument; missing ones are synthesised, all of them if None.
        duration_s: Seconds to render.
        rng: Draws the samples, parameters and levels.
        noise: Draws noise.

    Returns:
        float32 ``[T]`` at 22,050 Hz.
    """
    total = round(duration_s * SAMPLE_RATE)
    out = np.zeros(total, dtype=np.float32)
    strokes: dict[str, NDArray[np.float32]] = {}
    for note in notes:
        tom = "tom" if 41 <= note.pitch <= 50 else "shaker"
        kind = _INSTRUMENTS.get(note.pitch, tom)
        if kind not in strokes:
            level = rng.uniform(0.5, 1.0) * (1.0 if kind in {"kick", "snare"} else 0.45)
            strokes[kind] = np.float32(level) * _stroke(kind, kit, rng, noise)
        stroke = strokes[kind]
        first = round(note.start * SAMPLE_RATE)
        length = min(len(stroke), total - first)
        if first >= 0 and length > 0:
            out[first : first + length] += stroke[:length] * (note.velocity / 110) ** 1.5
    return out


def _stroke(
    kind: str, kit: dict[str, tuple[Path, ...]] | None, rng: Random, noise: np.random.Generator
) -> NDArray[np.float32]:
    """Return one stroke, peak 1."""
    if kit and kind in kit:
        stroke = _sample(rng.choice(kit[kind]))
    else:
        length = round(SAMPLE_RATE * (1.2 if kind == "crash" else 0.5))
        t = np.arange(length) / SAMPLE_RATE
        stroke = np.tanh(_synthetic(kind, t, rng, noise) * rng.uniform(0.7, 3.0))
    return np.asarray(stroke / max(1e-4, float(np.abs(stroke).max())), dtype=np.float32)


def _synthetic(
    kind: str, t: NDArray[np.float64], rng: Random, noise: np.random.Generator
) -> NDArray[np.float64]:
    """Synthesise a stroke from random parameters."""
    hiss: NDArray[np.float64] = noise.normal(size=len(t))
    if kind == "kick":
        sweep = rng.uniform(1.0, 6.0) * (1 - np.exp(-t * rng.uniform(20, 60)))
        body = np.sin(2 * np.pi * (rng.uniform(42, 65) * t + sweep))
        click = rng.uniform(0.0, 0.3) * hiss * np.exp(-t * 300)
        return np.asarray(body * np.exp(-t * rng.uniform(5, 18)) + click)
    if kind in {"tom", "conga", "bell"}:
        low, high = {"tom": (80, 180), "conga": (180, 420), "bell": (500, 900)}[kind]
        return np.asarray(np.sin(2 * np.pi * rng.uniform(low, high) * t) * np.exp(-t * 10))
    if kind in {"snare", "clap"}:
        tone = 0.5 * np.sin(2 * np.pi * rng.uniform(160, 240) * t) * np.exp(-t * 25)
        rattle = 0.5 * hiss * np.exp(-t * rng.uniform(12, 35))
        mixed = rattle + (tone if kind == "snare" else 0.0)
        return np.asarray(_highpass(mixed, rng.uniform(300, 1500)))
    decay = {"hat": rng.uniform(30, 90), "open": rng.uniform(6, 14), "shaker": rng.uniform(30, 70)}
    return _highpass(hiss, rng.uniform(4000, 8000)) * np.exp(
        -t * decay.get(kind, rng.uniform(3, 9))
    )


def _highpass(x: NDArray[np.float64], hz: float) -> NDArray[np.float64]:
    return np.asarray(sosfilt(butter(2, hz, "hp", fs=SAMPLE_RATE, output="sos"), x))
