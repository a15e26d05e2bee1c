"""Kinds of sound made with numpy: solo piano, metal, speech, singing, noise; mono at 44.1 kHz."""

import numpy as np
from numpy.typing import NDArray

from pipelines.audio.waveform import SAMPLE_RATE, Waveform

Samples = NDArray[np.float64]

# First three formants in Hz, a man's (Peterson and Barney 1952).
_VOWELS = {
    "i": (270, 2290, 3010),
    "e": (530, 1840, 2480),
    "a": (730, 1090, 2440),
    "o": (570, 840, 2410),
    "u": (300, 870, 2240),
}
_BANDWIDTHS = (60, 90, 150)


def _seconds(seconds: float) -> Samples:
    return np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE


def _add(track: Samples, at_s: float, sound: Samples) -> None:
    start = round(at_s * SAMPLE_RATE)
    stop = min(len(track), start + len(sound))
    track[start:stop] += sound[: max(0, stop - start)]


def _filtered(sound: Samples, response: Samples) -> Samples:
    """Multiply the spectrum by a response given at the frequencies of its real FFT."""
    return np.fft.irfft(np.fft.rfft(sound) * response, len(sound))


def _key_struck(midi: int, velocity: float, seconds: float) -> Samples:
    """A string: partials a little sharp, the high ones dying first, and the hammer's knock."""
    t = _seconds(seconds)
    fundamental = 440.0 * 2 ** ((midi - 69) / 12)
    sound = np.zeros_like(t)
    for n in range(1, 16):
        frequency = n * fundamental * np.sqrt(1 + 4e-4 * n * n)
        if frequency < 12_000:
            decay = 0.6 + 0.25 * n + fundamental / 900
            sound += np.sin(2 * np.pi * frequency * t) * np.exp(-decay * t) / n ** (2.2 - velocity)
    knock = np.random.default_rng(midi).standard_normal(len(t)) * np.exp(-180 * t) * 0.02
    return velocity * (sound + knock) * np.minimum(1, (seconds - t) * 20)


def piano(seconds: float = 20.0, seed: int = 0) -> Waveform:
    """Broken chords and a melody on a solo piano."""
    rng = np.random.default_rng(seed)
    track = np.zeros(round(seconds * SAMPLE_RATE))
    at, bar = 0.0, 0
    while at < seconds:
        root, third = ((57, 3), (53, 4), (48, 4), (55, 4))[bar % 4]
        _add(track, at, _key_struck(root - 12, 0.6, 3.0))
        for i in range(8):
            pitch = root + (0, 7, 12, 12 + third)[i % 4]
            _add(track, at + i * 0.3 + rng.normal(0, 0.008), _key_struck(pitch, 0.35, 1.5))
        for i in (0, 3, 6):
            pitch = root + 24 + (0, third, 7)[rng.integers(3)]
            _add(track, at + i * 0.3, _key_struck(pitch, rng.uniform(0.5, 0.7), 2.0))
        at, bar = at + 2.4, bar + 1
    return _waveform(track, 0.5)


def metal(seconds: float = 20.0, seed: int = 0) -> Waveform:
    """Distorted guitars on low fifths over double bass drum, snare and cymbals."""
    rng = np.random.default_rng(seed)
    n = round(seconds * SAMPLE_RATE)
    guitars, drums = np.zeros(n), np.zeros(n)
    step = 60 / 170 / 4
    hit = _seconds(0.3)
    kick = np.sin(2 * np.pi * (55 * hit + 5 * (1 - np.exp(-50 * hit)))) * np.exp(-18 * hit)
    kick += rng.standard_normal(len(hit)) * np.exp(-300 * hit) * 0.6
    snare = rng.standard_normal(len(hit)) * np.exp(-16 * hit)
    snare += 0.6 * np.sin(2 * np.pi * 190 * hit) * np.exp(-25 * hit)
    crash = np.diff(rng.standard_normal(len(hit) + 1)) * np.exp(-9 * hit)
    for i in range(int(seconds / step)):
        root = (28, 28, 31, 33, 28, 28, 34, 33)[i // 16 % 8]
        palm = i % 4 in (1, 3)
        t = _seconds(step if palm else step * 1.0)
        chord = sum(
            ((440.0 * 2 ** ((root + interval - 69) / 12) * t + phase) % 1 - 0.5)
            for interval in (0, 7, 12)
            for phase in rng.random(2)
        )
        _add(guitars, i * step, chord * np.exp(-(14 if palm else 2) * t))
        _add(drums, i * step, 0.8 * kick)
        if i % 8 == 4:
            _add(drums, i * step, snare)
        if i % 4 == 0:
            _add(drums, i * step, 0.5 * crash)
    guitars = np.tanh(8 * guitars)
    hertz = np.fft.rfftfreq(n, 1 / SAMPLE_RATE)
    cabinet = (hertz / (hertz + 90)) / (1 + (hertz / 4500) ** 4)
    track = np.tanh(1.5 * (0.7 * _filtered(guitars, cabinet) + 0.9 * drums))
    return _waveform(track, 0.95)


def _voice(pitch: Samples, vowels: list[str], seconds_each: float, breath: Samples) -> Samples:
    """Glottal pulses at ``pitch`` Hz and noise, through the formants of one vowel after another."""
    phase = np.cumsum(pitch) / SAMPLE_RATE
    source = np.diff((phase % 1) ** 3, prepend=0.0) * 20
    out = np.zeros_like(pitch)
    n = round(seconds_each * SAMPLE_RATE)
    fade = np.hanning(2 * n + 1)
    hertz = np.fft.rfftfreq(2 * n + 1, 1 / SAMPLE_RATE)
    for i, vowel in enumerate(vowels):
        start = i * n - n // 2
        lo, hi = max(0, start), min(len(out), start + 2 * n + 1)
        if hi <= lo:
            continue
        block = np.zeros(2 * n + 1)
        block[lo - start : hi - start] = (source + breath)[lo:hi]
        response = np.full(len(hertz), 0.01)
        for formant, width in zip(_VOWELS[vowel], _BANDWIDTHS, strict=True):
            response = response + width / np.hypot(hertz - formant, width) * (500 / formant) ** 0.7
        out[lo:hi] += (_filtered(block, response) * fade)[lo - start : hi - start]
    return out


def speech(seconds: float = 20.0, seed: int = 0) -> Waveform:
    """Somebody talking nonsense: syllables at 5 Hz, falling phrases, hissed consonants, pauses."""
    rng = np.random.default_rng(seed)
    n = round(seconds * SAMPLE_RATE)
    pitch, loud, hiss = np.full(n, 110.0), np.zeros(n), np.zeros(n)
    at = 0.1
    while at < seconds - 0.5:
        n_syllables = rng.integers(5, 12)
        start = at
        for i in range(n_syllables):
            length = rng.uniform(0.13, 0.26)
            lo, hi = round(at * SAMPLE_RATE), min(n, round((at + length) * SAMPLE_RATE))
            if hi - lo < 100:
                break
            shape = np.hanning(hi - lo) ** 0.6
            loud[lo:hi] += shape * rng.uniform(0.5, 1.0)
            fall = 150 - 55 * i / n_syllables
            pitch[lo:hi] = fall + rng.uniform(-12, 18) * np.sin(np.linspace(0, np.pi, hi - lo))
            if rng.random() < 0.5:
                width = rng.integers(2000, 4500)
                burst = np.diff(rng.standard_normal(width + 1)) * np.hanning(width)
                hiss[lo : lo + width] += (rng.uniform(0.3, 1.0) * burst)[: n - lo]
            at += length
        at = max(at, start) + rng.uniform(0.25, 0.7)
    breath = 0.02 * rng.standard_normal(n)
    vowels = rng.choice(list(_VOWELS), int(seconds / 0.09) + 2).tolist()
    return _waveform(_voice(pitch, vowels, 0.09, breath) * loud + hiss, 0.7)


def noise(seconds: float = 20.0, seed: int = 0) -> Waveform:
    """White noise."""
    rng = np.random.default_rng(seed)
    return _waveform(rng.standard_normal(round(seconds * SAMPLE_RATE)), 0.8)


def _waveform(track: Samples, peak: float) -> Waveform:
    return Waveform((track * (peak / np.abs(track).max()))[None].astype(np.float32))
