"""Oscillators, frequency modulation, bowed strings and voices, synthesised note by note.

A note with a slow attack begins early, so that it is heard at its time: labels stay at the
perceived onset.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from pipelines.training.music.score import Note
from pipelines.training.sound.soundfonts import SAMPLE_RATE

_PERCEIVED = 0.4
"""Share of a linear attack after which a note is heard (half its power's rise, roughly)."""
_LONGEST_S = 6.0
_SHORTEST_S = 0.06
_VOWELS = (
    (350, 1900, 2500),
    (730, 1090, 2440),
    (570, 840, 2410),
    (300, 870, 2240),
    (500, 1500, 2500),
)

Wave = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""From phase in cycles and time in seconds to samples."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A synthesiser's setting.

    Attributes:
        wave: Waveform.
        attack_s: Linear attack.
        decay: Exponential decay per second; 0 sustains.
        release_s: Linear release.
        cutoffs: Low-pass frequencies between which a slow sweep moves.
        vibrato: Depth in semitones.
    """

    wave: Wave
    attack_s: float
    decay: float
    release_s: float
    cutoffs: tuple[float, float]
    vibrato: float = 0.0


def draw_patch(rng: Random, *, is_soft: bool = False) -> Patch:
    """Draw a random setting; soft ones swell like pads and strings."""
    wave = _draw_wave(rng)
    low = rng.uniform(300, 3000)
    cutoffs = (low, low * rng.choice([1.0, 1.0, rng.uniform(1.5, 6.0)]))
    if is_soft:
        attack = rng.choice([0.01, rng.uniform(0.02, 0.12)])
        return Patch(wave, attack, 0.0, rng.uniform(0.05, 0.3), cutoffs, rng.choice([0.0, 0.12]))
    decay = rng.choice([0.0, rng.uniform(2.0, 12.0)])
    return Patch(wave, rng.uniform(0.002, 0.008), decay, 0.012, cutoffs)


def _draw_wave(rng: Random) -> Wave:
    width = rng.choice([0.5, 0.5, 0.25, 0.125])
    detune = rng.uniform(1.002, 1.012)
    ratio, depth = rng.choice([0.5, 1.0, 2.0, 3.0, 1.41]), rng.uniform(0.05, 0.5)

    def saw(phase: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
        return 2 * (phase % 1) - 1

    def pulse(phase: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(phase % 1 < width, 1.0, -1.0) + 1 - 2 * width

    def triangle(phase: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
        return 4 * np.abs(phase % 1 - 0.5) - 1

    def detuned(phase: NDArray[np.float64], _: NDArray[np.float64]) -> NDArray[np.float64]:
        return 0.6 * (2 * (phase % 1) + 2 * ((phase * detune + 0.3) % 1) - 2)

    def modulated(phase: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
        index = depth * np.exp(-3 * t)
        return np.sin(2 * np.pi * (phase + index * np.sin(2 * np.pi * ratio * phase)))

    return rng.choice([saw, saw, pulse, pulse, triangle, detuned, detuned, modulated])


def play_patch(
    notes: Sequence[Note], patch: Patch, duration_s: float, sweep_s: float = 16.0
) -> NDArray[np.float32]:
    """Synthesise notes with one setting, float32 ``[T]``, root mean square about .15.

    Args:
        notes: Times in seconds.
        patch: The setting.
        duration_s: Seconds to render.
        sweep_s: Period of the filter's sweep.
    """
    total = round(duration_s * SAMPLE_RATE)
    out = np.zeros(total)
    sounds: dict[tuple[int, int], NDArray[np.float64]] = {}
    early = _PERCEIVED * patch.attack_s if patch.attack_s > 0.015 else 0.0
    for note in notes:
        # Lengths rounded to 5 ms: most notes of a loop are then identical.
        length = round(min(_LONGEST_S, max(_SHORTEST_S, note.end - note.start)) * 200)
        key = (note.pitch, length)
        if key not in sounds:
            sounds[key] = _note(patch, note.pitch, length / 200)
        first = round((note.start - early) * SAMPLE_RATE)
        sound = sounds[key][max(0, -first) :]
        first = max(0, first)
        count = min(len(sound), total - first)
        if count > 0:
            out[first : first + count] += sound[:count] * (note.velocity / 100)
    low, high = patch.cutoffs
    filtered = sosfilt(butter(2, min(low, 9000), "lp", fs=SAMPLE_RATE, output="sos"), out)
    if high > low:
        bright = sosfilt(butter(2, min(high, 9000), "lp", fs=SAMPLE_RATE, output="sos"), out)
        opened = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(total) / SAMPLE_RATE / sweep_s)
        filtered = filtered + opened * (bright - filtered)
    return _levelled(filtered)


def _note(patch: Patch, pitch: int, length_s: float) -> NDArray[np.float64]:
    t = np.arange(round((length_s + patch.release_s) * SAMPLE_RATE)) / SAMPLE_RATE
    hz = 440 * 2 ** ((pitch - 69) / 12)
    phase = hz * t
    if patch.vibrato:
        depth = hz * np.log(2) / 12 * patch.vibrato / (2 * np.pi * 5.5)
        phase = phase + depth * (1 - np.cos(2 * np.pi * 5.5 * t))
    envelope = np.minimum(1, t / patch.attack_s) * np.exp(-patch.decay * t)
    envelope *= np.clip((length_s + patch.release_s - t) / patch.release_s, 0, 1)
    return np.asarray(patch.wave(phase, t) * envelope)


def sing(
    notes: Sequence[Note], duration_s: float, rng: Random, noise: np.random.Generator
) -> NDArray[np.float32]:
    """Sing notes: a gliding glottal wave with vibrato through drawn vowels, float32 ``[T]``."""
    total = round(duration_s * SAMPLE_RATE)
    out = np.zeros(total)
    before: int | None = None
    glide, attack = rng.uniform(12, 40), rng.uniform(0.02, 0.09)
    for note in sorted(notes):
        length = min(_LONGEST_S, max(_SHORTEST_S, note.end - note.start))
        first = round((note.start - _PERCEIVED * attack) * SAMPLE_RATE)
        count = min(round(length * SAMPLE_RATE), total - first)
        if first < 0 or count <= 0:
            continue
        t = np.arange(count) / SAMPLE_RATE
        hz = 440 * 2 ** ((note.pitch - 69) / 12)
        bend = 0.7 * np.exp(-t * glide) * ((before or note.pitch) - note.pitch)
        bend += 0.25 * np.sin(2 * np.pi * 5.5 * t + rng.random() * 6) * np.minimum(1, 3 * t)
        phase = np.cumsum(hz * 2 ** (bend / 12)) / SAMPLE_RATE
        envelope = np.minimum(1, t / attack) * np.minimum(1, (t[-1] - t) / 0.06)
        breath = 0.05 * noise.normal(size=count)
        out[first : first + count] += (2 * (phase % 1) - 1 + breath) * envelope * note.velocity
        before = note.pitch
    vowel, other = rng.sample(_VOWELS, 2)
    blend = 0.5 + 0.5 * np.sin(2 * np.pi * np.arange(total) / SAMPLE_RATE * rng.uniform(0.1, 1.5))
    voiced = 0.2 * out + _formants(out, vowel) * blend + _formants(out, other) * (1 - blend)
    return _levelled(voiced)


def _formants(x: NDArray[np.float64], hertz: Sequence[int]) -> NDArray[np.float64]:
    voiced: NDArray[np.float64] = np.sum(
        [
            gain * sosfilt(butter(1, [hz * 0.87, hz * 1.15], "bp", fs=SAMPLE_RATE, output="sos"), x)
            for hz, gain in zip(hertz, (2.0, 1.2, 0.5), strict=True)
        ],
        axis=0,
    )
    return voiced


def _levelled(x: NDArray[np.float64]) -> NDArray[np.float32]:
    rms = float(np.sqrt(np.mean(x**2)))
    return np.asarray(0.15 * x / max(rms, 1e-4), dtype=np.float32)
