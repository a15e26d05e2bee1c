"""Small pieces of music with exact beats, bars and key, rendered with numpy."""

import itertools
from dataclasses import dataclass

import numpy as np

RATE = 44_100
CADENCES = {"major": ((0, 4), (5, 4), (7, 4), (0, 4)), "minor": ((0, 3), (5, 3), (7, 4), (0, 3))}


@dataclass(frozen=True)
class Piece:
    """Audio ``[2, T]`` at 44.1 kHz and its ground truth."""

    samples: np.ndarray
    beats: np.ndarray
    downbeats: np.ndarray


def _add(track: np.ndarray, at_s: float, sound: np.ndarray) -> None:
    start = round(at_s * RATE)
    stop = min(len(track), start + len(sound))
    if stop > start:
        track[start:stop] += sound[: stop - start]


def _drums() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    t = np.arange(int(0.25 * RATE)) / RATE
    return {
        "kick": np.sin(2 * np.pi * (50 * t + 6 * (1 - np.exp(-40 * t)))) * np.exp(-14 * t),
        "snare": rng.standard_normal(len(t)) * np.exp(-25 * t) * 0.5,
        "hat": np.diff(rng.standard_normal(len(t) + 1)) * np.exp(-80 * t) * 0.2,
    }


def chord(root: int, third: int, seconds: float, cents: float = 0.0) -> np.ndarray:
    """A decaying triad of sawtooth-like tones; ``root`` in semitones above C."""
    t = np.arange(int(seconds * RATE)) / RATE
    sound = np.zeros_like(t)
    for semitone in (root - 12, root, root + third, root + 7):
        f = 261.6256 * 2 ** ((semitone + cents / 100) / 12)
        for harmonic in range(1, 6):
            sound += np.sin(2 * np.pi * f * harmonic * t) / harmonic**1.5
    return sound * np.exp(-1.2 * t) * np.minimum(1, t * 200)


def band(
    beats: np.ndarray, metre: int = 4, key: int = 0, mode: str = "major", cents: float = 0.0
) -> Piece:
    """Kick, snare, hats and one chord a bar over any beat times in seconds."""
    drums = _drums()
    track = np.zeros(int((beats[-1] + 1.0) * RATE))
    for i, (now, after) in enumerate(itertools.pairwise(beats)):
        position = i % metre
        if position == 0:
            root, third = CADENCES[mode][(i // metre) % 4]
            length = (after - now) * metre
            _add(track, now, 0.12 * chord((key + root + 5) % 12 - 5, third, length, cents))
            _add(track, now, drums["kick"])
        elif metre == 4 and position == 2:
            _add(track, now, 0.7 * drums["kick"])
        if (metre == 4 and position % 2 == 1) or (metre == 3 and position > 0):
            _add(track, now, drums["snare"])
        _add(track, now, drums["hat"])
        _add(track, (now + after) / 2, 0.6 * drums["hat"])
    track *= 0.5 / np.abs(track).max()
    samples = np.stack([track, 0.9 * track]).astype(np.float32)
    return Piece(samples, beats[:-1], beats[:-1][::metre])


def steady(tempo: float, seconds: float, **settings: object) -> Piece:
    """A piece of constant tempo whose first beat is at 0.3 s."""
    return band(np.arange(0.3, seconds, 60 / tempo), **settings)  # type: ignore[arg-type]
