"""One labelled clip from one seed: the same seed gives the same music and the same labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from models.rhythm.network import BeatFeatures
from pipelines.training.kept import reading
from pipelines.training.music.performance import Performance, perform
from pipelines.training.music.score import Piece, UnusableError
from pipelines.training.sound.mix import Instruments, render_mix
from pipelines.training.sound.soundfonts import SAMPLE_RATE

Generator = Callable[[Random, float], Piece]
"""Invents a piece that lasts at least a given number of seconds."""

UNKNOWN_KEY = -1
_LOUDEST = 2000.0
TRIES = 12


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip's features and truth.

    Attributes:
        bands: float16 ``[N, 83]``: `BeatFeatures.bands` of the clip scaled to level 1.
        beats: Seconds, ascending, all beats.
        downbeats: Seconds, ascending.
        key: Tonic's pitch class, plus 12 for minor, or `UNKNOWN_KEY`.
        label: ``kind:style``.
    """

    bands: NDArray[np.float16]
    beats: NDArray[np.float64]
    downbeats: NDArray[np.float64]
    key: int
    label: str

    def save(self, path: Path) -> None:
        """Write the clip; the file appears whole or not at all."""
        part = path.with_suffix(".part.npz")
        np.savez(
            part,
            bands=self.bands,
            beats=self.beats,
            downbeats=self.downbeats,
            key=self.key,
            label=self.label,
        )
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Clip":
        """Read what `save` wrote; raises as `pipelines.training.kept.reading`."""
        with reading(path) as file, np.load(file) as content:
            return cls(
                content["bands"],
                content["beats"],
                content["downbeats"],
                int(content["key"]),
                str(content["label"]),
            )


def make_clip(
    kind: str,
    seed: int,
    generators: Mapping[str, Generator],
    instruments: Instruments,
    duration_s: float,
) -> Clip:
    """Invent, play, mix and measure a clip.

    Raises:
        UnusableError: See `played`.
    """
    rng = Random(f"{kind} {seed}")  # noqa: S311
    noise = np.random.default_rng(seed)
    piece, performance = played(f"{kind} {seed}", generators[kind], rng, duration_s)
    waveform = render_mix(piece, performance, instruments, duration_s, rng, noise)
    return _measured(piece, waveform, performance.beats, performance.downbeats, rng)


def played(
    name: str, generator: Generator, rng: Random, duration_s: float
) -> tuple[Piece, Performance]:
    """Invent a piece that can be played, and play it.

    Raises:
        UnusableError: Every attempt at a piece of that name failed.
    """
    for _ in range(TRIES):
        try:
            piece = generator(rng, duration_s)
            return piece, perform(piece, rng, duration_s)
        except UnusableError:
            continue
    raise UnusableError(name)


def _measured(
    piece: Piece,
    waveform: NDArray[np.float32],
    beats: NDArray[np.float64],
    downbeats: NDArray[np.float64],
    rng: Random,
) -> Clip:
    """Shift by whole semitones, as a change of tape speed does, and measure the features."""
    shift = rng.choice([0, 0, 0, -2, -1, 1, 2])
    key = UNKNOWN_KEY
    if piece.key is not None:
        key = (piece.key % 12 + shift) % 12 + 12 * (piece.key >= 12)
    if shift:
        faster = 2 ** (shift / 12)
        waveform = soxr.resample(waveform, SAMPLE_RATE, SAMPLE_RATE / faster)
        beats, downbeats = beats / faster, downbeats / faster
    return Clip(bands_of(waveform), beats, downbeats, key, piece.label)


@cache
def _features() -> BeatFeatures:
    return BeatFeatures()


def bands_of(waveform: NDArray[np.float32]) -> NDArray[np.float16]:
    """Measure float32 ``[T]`` at 22,050 Hz, scaled to level 1: float16 ``[N, 83]``."""
    features = _features()
    with torch.inference_mode():
        tensor = torch.from_numpy(np.ascontiguousarray(waveform, dtype=np.float32))[None]
        bands = features.bands(tensor / features.level(tensor)[:, None])[0]
    return bands.clamp_max(_LOUDEST).numpy().astype(np.float16)
