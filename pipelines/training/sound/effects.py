"""Risers, impacts and the like: noise that announces the phrases of electronic music."""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from pipelines.training.music.score import Note
from pipelines.training.sound.soundfonts import SAMPLE_RATE

RISER, REVERSE, IMPACT, DOWNLIFTER = range(4)
_LEVEL = 0.25


def play_effects(
    notes: list[Note], duration_s: float, noise: np.random.Generator
) -> NDArray[np.float32]:
    """Synthesise effects, float32 ``[T]``; the pitch of a note selects the effect."""
    out = np.zeros(round(duration_s * SAMPLE_RATE), dtype=np.float32)
    for note in notes:
        first = round(note.start * SAMPLE_RATE)
        length = min(round((note.end - note.start) * SAMPLE_RATE), len(out) - first)
        if first < 0 or length < SAMPLE_RATE // 10:
            continue
        out[first : first + length] += (
            _LEVEL * note.velocity / 100 * _effect(note.pitch, length, noise)
        )
    return out


def _effect(kind: int, length: int, noise: np.random.Generator) -> NDArray[np.float32]:
    t = np.linspace(0.0, 1.0, length, dtype=np.float32)
    hiss = noise.normal(size=length).astype(np.float32)
    if kind == IMPACT:
        seconds = np.arange(length) / SAMPLE_RATE
        boom = np.sin(2 * np.pi * 48 * (seconds + 0.1 * (1 - np.exp(-8 * seconds))))
        return np.asarray((2 * boom + 0.3 * hiss) * np.exp(-3 * seconds), dtype=np.float32)
    bright = sosfilt(butter(1, 3000, "hp", fs=SAMPLE_RATE, output="sos"), hiss)
    dark = sosfilt(butter(2, 700, "lp", fs=SAMPLE_RATE, output="sos"), hiss)
    rising = t if kind in {RISER, REVERSE} else 1 - t
    swept = bright * rising + dark * (1 - rising)
    steepness = 6.0 if kind == REVERSE else 2.0
    if kind == RISER and noise.random() < 0.4:  # With a tone that climbs two octaves.
        phase = np.cumsum(110 * 4**t) / SAMPLE_RATE
        swept = swept + (phase % 1 - 0.5)
    return np.asarray(swept * rising**steepness, dtype=np.float32)
