"""Add to bands what real recordings have and renders lack."""

import numpy as np
from numpy.typing import NDArray

from models.tonality.keynet import BANDS_PER_OCTAVE, N_BANDS

Bands = NDArray[np.float32]
_PER_SEMITONE = BANDS_PER_OCTAVE // 12
_BANDS = np.arange(N_BANDS)
_DETUNED, _MOST_DETUNED = 0.25, 0.6
"""Bands, a third of a semitone each."""


def transposed(bands: Bands, bands_up: float, rng: np.random.Generator) -> Bands:
    """Move ``[N, 180]`` up by a fractional number of bands; those that come in are faint."""
    whole = int(np.floor(bands_up))
    part = bands_up - whole
    moved = np.roll(bands, whole, axis=1)
    if whole > 0:
        moved[:, :whole] = moved[:, whole : whole + 1] * rng.uniform(0, 0.5)
    elif whole < 0:
        moved[:, whole:] = moved[:, whole - 1 : whole] * rng.uniform(0, 0.5)
    below = np.concatenate([moved[:, :1], moved[:, :-1]], axis=1)
    return np.asarray((1 - part) * moved + part * below, dtype=np.float32)


def in_another_key(bands: Bands, rng: np.random.Generator) -> tuple[Bands, int]:
    """Move ``[N, 180]`` by a random -5 to 6 semitones, slightly out of tune.

    Returns:
        The bands, and the semitones that they were moved up.
    """
    up = int(rng.integers(-5, 7))
    detuned = float(np.clip(rng.normal(0, _DETUNED), -_MOST_DETUNED, _MOST_DETUNED))
    return transposed(bands, up * _PER_SEMITONE + detuned, rng), up


def augment(bands: Bands, other: Bands, rng: np.random.Generator) -> Bands:
    """Apply a random equaliser, drums, noise, speech, other music and compression to ``[N, 180]``.

    Args:
        bands: Magnitudes.
        other: Magnitudes of other music, at least as long.
        rng: Draws the alterations.

    Returns:
        float32 with a mean of 1.
    """
    altered = np.asarray(bands, dtype=np.float64)
    level = float(altered.mean())
    if rng.random() < 0.7:
        altered = altered * _curve(6, 0.7, rng)
    if rng.random() < 0.3:
        tilt = np.linspace(rng.uniform(0, 1.5), 0, N_BANDS) * rng.choice([1, 1, -1])
        altered = altered * np.exp(tilt)
    if rng.random() < 0.55:
        altered = altered + level * _drums(altered.shape, rng)
    if rng.random() < 0.5:
        altered = altered + level * np.abs(
            rng.normal(0, 10 ** rng.uniform(-2, -0.3), altered.shape)
        )
    if rng.random() < 0.2:
        speech = _speech(len(altered), rng)
        altered = altered + speech * (rng.uniform(0.1, 0.8) * level / max(speech.mean(), 1e-6))
    if rng.random() < 0.1:
        altered = altered + other[: len(altered)] * rng.uniform(0.03, 0.15)
    if rng.random() < 0.3:
        altered = altered ** rng.uniform(0.6, 1.0)
    return np.asarray(altered / max(float(altered.mean()), 1e-6), dtype=np.float32)


def _curve(points: int, depth: float, rng: np.random.Generator) -> NDArray[np.float64]:
    steps = np.linspace(0, N_BANDS - 1, points)
    return np.asarray(np.exp(np.interp(_BANDS, steps, rng.normal(0, depth, points))))


def _drums(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    strokes = (rng.random(shape[0]) < rng.uniform(0.1, 0.7)) * rng.exponential(
        rng.uniform(0.1, 2.0), shape[0]
    )
    return strokes[:, None] * _curve(8, 0.8, rng) * np.abs(rng.normal(1, 0.35, shape))


def _speech(n_frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A gliding comb of partials under formants, syllable by syllable."""
    speech = np.zeros((n_frames, N_BANDS))
    numbers = np.arange(1, 25)
    partials = BANDS_PER_OCTAVE * np.log2(numbers)
    is_voiced = np.repeat(rng.random(n_frames // 2 + 1) < 0.8, 2)[:n_frames]
    pitch = rng.uniform(0, 60)
    for frame in range(n_frames):
        pitch = float(np.clip(pitch + rng.normal(0, _PER_SEMITONE), 0, 80))
        if is_voiced[frame]:
            at = np.round(pitch + partials).astype(np.int64)
            inside = at < N_BANDS
            np.add.at(speech[frame], at[inside], numbers[inside] ** -0.7)
    return speech * _curve(10, 1.0, rng)
