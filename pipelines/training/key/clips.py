"""A clip with its key from one seed: what sounds when, and the network's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from models.tonality.keynet import FRAMES_TOGETHER, HOP_LENGTH, KeyBands
from pipelines.training.clips import UNKNOWN_KEY, Generator, played
from pipelines.training.kept import reading
from pipelines.training.music.performance import Performance
from pipelines.training.music.score import DRUMS, EFFECTS
from pipelines.training.sound.mix import Instruments, render_mix
from pipelines.training.sound.mixing import Waveform, distort
from pipelines.training.sound.soundfonts import SAMPLE_RATE

FRAME_RATE = SAMPLE_RATE / HOP_LENGTH / FRAMES_TOGETHER
NO_BASS = 12
_BASS_BELOW = 60
_KEYBOARD = 128


@dataclass(frozen=True, slots=True)
class KeyClip:
    """A clip's bands and truth.

    Attributes:
        bands: float16 ``[N, 180]``, see `models.tonality.keynet.KeyBands`, in tune with 440 Hz.
        pitches: uint8 ``[N, 12]``: 1 if a pitch class sounds.
        bass: int8 ``[N]``: pitch class of the lowest note below middle C, or `NO_BASS`.
        key: Tonic's pitch class, plus 12 for minor, or `UNKNOWN_KEY`.
    """

    bands: NDArray[np.float16]
    pitches: NDArray[np.uint8]
    bass: NDArray[np.int8]
    key: int

    def save(self, path: Path) -> None:
        """Write the clip; the file appears whole or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(part, bands=self.bands, pitches=self.pitches, bass=self.bass, key=self.key)
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "KeyClip":
        """Read what `save` wrote; raises as `pipelines.training.kept.reading`."""
        with reading(path) as file, np.load(file) as content:
            return cls(content["bands"], content["pitches"], content["bass"], int(content["key"]))


def make_key_clip(
    kind: str,
    seed: int,
    generators: Mapping[str, Generator],
    instruments: Instruments,
    duration_s: float,
) -> KeyClip:
    """Invent, play, mix and measure a clip.

    Raises:
        UnusableError: See `played`.
    """
    rng = Random(f"key {kind} {seed}")  # noqa: S311
    noise = np.random.default_rng(seed)
    piece, performance = played(f"{kind} {seed}", generators[kind], rng, duration_s)
    drums = float(np.exp(rng.gauss(0.25, 0.6))) if rng.random() < 0.6 else 1.0
    mix = render_mix(piece, performance, instruments, duration_s, rng, noise, drums)
    shift = rng.choice([0, 0, 0, -2, -1, 1, 2])
    key = UNKNOWN_KEY
    if piece.key is not None:
        key = (piece.key % 12 + shift) % 12 + 12 * (piece.key >= 12)
    return measure(mastered(mix, rng), performance, shift, key)


def mastered(mix: Waveform, rng: Random) -> Waveform:
    """Add what records have and mixes lack: distortion of the whole, and a heavy bass."""
    if rng.random() < 0.15:
        mix = distort(mix, rng.uniform(1, 4))
    if rng.random() < 0.25:
        low = butter(1, rng.uniform(80, 200), "lp", fs=SAMPLE_RATE, output="sos")
        mix = np.asarray(mix + rng.uniform(1, 5) * sosfilt(low, mix), dtype=np.float32)
    return mix


def measure(mix: Waveform, performance: Performance, shift: int, key: int) -> KeyClip:
    """Shift by whole semitones, as a change of tape speed does; find the bands and notes."""
    faster = 2 ** (shift / 12)
    if shift:
        mix = soxr.resample(mix, SAMPLE_RATE, SAMPLE_RATE / faster)
    with torch.inference_mode():
        bands = KeyBands()(torch.from_numpy(np.ascontiguousarray(mix))[None])[0]
    n = len(bands)
    pitches = np.zeros((n, 12), dtype=np.uint8)
    lowest = np.full(n, _KEYBOARD)
    for note in performance.notes:
        if note.channel in (DRUMS, EFFECTS):
            continue
        first = round(note.start / faster * FRAME_RATE)
        last = max(first + 1, round(note.end / faster * FRAME_RATE))
        pitches[first:last, (note.pitch + shift) % 12] = 1
        lowest[first:last] = np.minimum(lowest[first:last], note.pitch + shift)
    bass = np.where(lowest < _BASS_BELOW, lowest % 12, NO_BASS)
    return KeyClip(bands.numpy().astype(np.float16), pitches, bass.astype(np.int8), key)
